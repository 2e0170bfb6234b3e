/** Which extensions a service can have, before there is one. */
import { ADDONS, EXTENSION_OF_ADDON, whyKept, type Addon } from '@howdah/contract/types';
import type { Schemas } from '@howdah/client';
import { answered, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ofProject } from '../find.ts';
import type { InTheWay } from './script/examine.ts';

type Offer = Pick<Schemas['Extension'], 'name' | 'kind' | 'allowed' | 'reason' | 'statement'> & {
  state?: Schemas['ServiceExtension']['state'];
};

/** Extensions that a service has or can have. `major`: of its PostgreSQL; null: the service itself says it. */
export type Offers = { major: number | null; extensions: readonly Offer[] };

/** The add-ons whose extensions are asked for. */
export function addonsFor(extensions: Iterable<string>): Addon[] {
  const names = new Set(extensions);
  return ADDONS.filter((addon) => names.has(EXTENSION_OF_ADDON[addon]));
}

/**
 * @param serviceId null: of a service that is created with these add-ons
 * @throws Failure
 */
export async function readOffers(
  connection: Connection,
  serviceId: string | null,
  addons: readonly Addon[],
): Promise<Offers> {
  const { path } = ofProject(connection);
  if (serviceId !== null) {
    const found = connection.client.GET('/projects/{project_id}/services/{service_id}/extensions', {
      params: { path: { ...path, service_id: serviceId } },
    });
    return { major: null, extensions: await answered(found) };
  }
  const all = await answered(
    connection.client.GET('/projects/{project_id}/extensions', { params: { path } }),
  );
  const names = addons.map((addon) => EXTENSION_OF_ADDON[addon]);
  const has = (extensions: readonly Offer[], wanted: string): boolean =>
    extensions.some(
      ({ name, kind, allowed }) => name === wanted && kind === 'extension' && allowed,
    );
  const place =
    all.find(({ extensions }) => names.every((name) => has(extensions, name))) ?? all[0];
  if (place === undefined) throw new Failure('the region has no PostgreSQL', 'unavailableHere');
  return { major: Number.parseInt(place.postgres_version, 10), extensions: place.extensions };
}

/** The extensions that the service cannot have, or must have before an import. */
export function problemsOfExtensions(
  wanted: Iterable<readonly [name: string, line: number]>,
  { extensions, major }: Offers,
  service: string | null,
): InTheWay[] {
  return [...wanted].flatMap(([name, line]): InTheWay[] => {
    const isInPlace = service === null && whyKept(name, addonsFor([name])) !== null;
    const offer = extensions.find((one) => one.name === name && one.kind === 'extension');
    const what = `the extension ${name}`;
    if (offer === undefined)
      return [
        {
          line,
          what: `${what}: the PostgreSQL ${major ?? 'of the service'} here does not have it`,
          remedy: `the operator adds it (howdah extension install ${name}), or remove it`,
        },
      ];
    if (!offer.allowed) return [{ line, what: `${what}: ${offer.reason}`, remedy: 'remove it' }];
    if (offer.state === 'enabled' || offer.statement !== undefined || isInPlace) return [];
    return [
      {
        line,
        what: `${what} is created by a call only`,
        remedy:
          service === null
            ? `create a service, howdah extension enable SERVICE ${name}, and import --into it`
            : `howdah extension enable ${service} ${name}`,
      },
    ];
  });
}

/** Says all that is in the way, at once. */
export function refuse(what: string, problems: readonly InTheWay[]): never {
  const inOrder = problems.toSorted((a, b) => a.line - b.line);
  const lines = inOrder.map(
    ({ line, what: found, remedy }) => `  ${line > 0 ? `line ${line}: ` : ''}${found}; ${remedy}`,
  );
  throw new Failure(`${what} cannot be imported; nothing was done:\n${lines.join('\n')}`, 'usage');
}
