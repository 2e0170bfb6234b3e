/** The passwords of forks, in the memory of this process alone. */
import { randomBytes } from 'node:crypto';

export type Passwords = {
  find: (serviceId: string) => string | undefined;
  keep: (serviceId: string, password: string) => void;
  /** Sets a new one, and keeps it. Calls at the same time get the same one. */
  renew: (serviceId: string, set: (password: string) => Promise<void>) => Promise<string>;
};

/** More forks than an agent needs; the oldest password is forgotten, and another one can be set. */
const MOST = 500;

export function createPasswords(): Passwords {
  const known = new Map<string, string>();
  const renewing = new Map<string, Promise<string>>();
  const keep = (serviceId: string, password: string): void => {
    known.delete(serviceId);
    known.set(serviceId, password);
    const [oldest] = known.keys();
    if (known.size > MOST && oldest !== undefined) known.delete(oldest);
  };
  const renew: Passwords['renew'] = async (serviceId, set) => {
    const password = makePassword();
    await set(password);
    keep(serviceId, password);
    return password;
  };
  return {
    find: (serviceId) => known.get(serviceId),
    keep,
    renew: async (serviceId, set) => {
      const running =
        renewing.get(serviceId) ??
        renew(serviceId, set).finally(() => {
          renewing.delete(serviceId);
        });
      renewing.set(serviceId, running);
      return running;
    },
  };
}

/** 192 random bits, without characters that a URL or a shell quotes. */
export const makePassword = (): string => randomBytes(24).toString('base64url');
