/** The packages of npm in our bundles: for the bill of materials, and for their licences. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `texts` are the licence files that the package has. */
export type Bundled = Readonly<{
  name: string;
  version: string;
  license: string;
  texts: readonly string[];
}>;

/**
 * @param root of the checkout
 * @param inputs paths of all files that the bundles are made of
 * @returns each package once for each version, by name
 * @throws Error for a package without a name, a version or a licence: it cannot be passed on
 */
export function bundledPackages(root: string, inputs: readonly string[]): Bundled[] {
  const directories = new Set(inputs.flatMap((path) => directoryOf(path) ?? []));
  const found = [...directories].map((directory) => readPackage(join(root, directory)));
  const byKey = new Map(found.map((one) => [`${one.name}@${one.version}`, one]));
  return [...byKey.keys()].toSorted().flatMap((key) => byKey.get(key) ?? []);
}

/** The directory of the package that a file is in; null: the file is ours. */
export function directoryOf(path: string): string | null {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? null;
}

function readPackage(directory: string): Bundled {
  const manifest: unknown = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
  const field = (name: string): string => {
    const value: unknown = Reflect.get(Object(manifest), name);
    if (typeof value !== 'string') throw new Error(`${directory}/package.json has no ${name}`);
    return value;
  };
  const texts = readdirSync(directory)
    .filter((file) => /^(licen[cs]e|copying|notice)/i.test(file))
    .toSorted()
    .map((file) => readFileSync(join(directory, file), 'utf8').trim());
  return { name: field('name'), version: field('version'), license: field('license'), texts };
}

/** The licences of all of them, as one text. */
export function licencesOf(packages: readonly Bundled[]): string {
  const parts = packages.map(({ name, version, license, texts }) =>
    [`${name} ${version}: ${license}`, ...texts].join('\n\n'),
  );
  const rule = '-'.repeat(80);
  return `Howdah contains these packages.\n\n${[...parts].join(`\n\n${rule}\n\n`)}\n`;
}

/**
 * A bill of materials in the form of CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/). The same
 * packages give the same bytes: its serial number is a hash of them.
 *
 * @param madeAt the moment of the commit
 */
export function billOfMaterials(
  version: string,
  madeAt: Date,
  packages: readonly Bundled[],
): string {
  const howdah = {
    type: 'application',
    name: 'howdah',
    version,
    purl: `pkg:npm/howdah@${version}`,
  };
  const components = packages.map(({ name, version: of, license }) => ({
    type: 'library',
    name,
    version: of,
    purl: `pkg:npm/${name.replace('@', '%40')}@${of}`,
    licenses: [{ expression: license }],
  }));
  const hash = createHash('sha256')
    .update(JSON.stringify([howdah, components]))
    .digest('hex');
  const serial = [hash.slice(0, 8), hash.slice(8, 12), `5${hash.slice(13, 16)}`];
  const serialNumber = `urn:uuid:${serial.join('-')}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
  const metadata = { timestamp: madeAt.toISOString(), component: howdah };
  const bill = { bomFormat: 'CycloneDX', specVersion: '1.6', serialNumber, version: 1, metadata };
  return `${JSON.stringify({ ...bill, components }, null, 2)}\n`;
}
