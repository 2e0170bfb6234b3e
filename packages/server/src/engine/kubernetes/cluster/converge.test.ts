import { expect, test } from 'vitest';
import { explainCrash } from './converge.ts';

const CRASH = 'pod s-one-1: CrashLoopBackOff: back-off 10s restarting failed container=postgres';

/** A pod with an output. */
function explained(why: string, output: string | Error): Promise<string> {
  const text = async (path: string): Promise<string> => {
    expect(path).toContain('/api/v1/namespaces/project/pods/s-one-1/log?');
    if (output instanceof Error) throw output;
    return output;
  };
  return explainCrash({ text }, 'project', why);
}

test.each(['No space left on device', 'Disk quota exceeded'])(
  'a server that ends with "%s" has a full volume',
  async (error) => {
    const line = `2026-11-28T17:02:24Z {"msg":"FATAL:  could not create file: ${error}"}\n`;
    expect(await explained(CRASH, line)).toMatch(/^pod s-one-1: its volume is full: resize it/);
  },
);

test('any other end has the reason of Kubernetes, and so has one without an output', async () => {
  expect(await explained(CRASH, '2026-11-28T17:02:24Z {"msg":"PANIC"}\n')).toBe(CRASH);
  expect(await explained(CRASH, new Error('the node does not answer'))).toBe(CRASH);
});

test('other obstacles are not looked up', async () => {
  const pull = 'pod s-one-1: ImagePullBackOff: no such image';
  const source = { text: () => expect.unreachable() };
  expect(await explainCrash(source, 'project', pull)).toBe(pull);
});
