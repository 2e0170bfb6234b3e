/** The control files of extensions, and the scripts beside them. */

/** The control file of an extension ([PG] 36.17.1). */
export type ControlFile = {
  readonly name: string;
  /** The directory that it is in. */
  readonly directory: string;
  readonly defaultVersion: string | null;
  readonly comment: string;
  readonly requires: readonly string[];
  readonly trusted: boolean;
  readonly superuser: boolean;
  readonly relocatable: boolean;
  /** The schema that its objects must be in; null: any. */
  readonly schema: string | null;
  /** The versions that can be created, by the scripts that are there. */
  readonly versions: readonly string[];
  /** Those, and the versions that a script updates to. */
  readonly reachable: readonly string[];
};

type Source = Pick<ControlFile, 'name' | 'directory'> & { readonly files: readonly string[] };

/** @param files the names of the files beside it */
export function parseControlFile({ name, directory, files }: Source, text: string): ControlFile {
  const values = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [, key, inQuotes, bare] =
      /^\s*(\w+)\s*=?\s*(?:'((?:[^']|'')*)'|([^\s#']+))\s*(?:#.*)?$/.exec(line) ?? [];
    if (key !== undefined) values.set(key, (inQuotes ?? bare ?? '').replaceAll("''", "'"));
  }
  const isOn = (key: string, fallback: boolean): boolean =>
    values.has(key) ? /^(true|on|yes|1)$/i.test(values.get(key) ?? '') : fallback;
  return {
    name,
    directory,
    defaultVersion: values.get('default_version') ?? null,
    comment: values.get('comment') ?? '',
    requires: (values.get('requires') ?? '').split(/[\s,]+/).filter((one) => one !== ''),
    trusted: isOn('trusted', false),
    superuser: isOn('superuser', true),
    relocatable: isOn('relocatable', false),
    schema: values.get('schema') ?? null,
    versions: versionsOf(name, files),
    reachable: reachableOf(name, files),
  };
}

/** A script `name--version.sql` creates that version; others update from one to another. */
function versionsOf(name: string, files: readonly string[]): string[] {
  return files.flatMap((file) => {
    if (!file.startsWith(`${name}--`) || !file.endsWith('.sql')) return [];
    const version = file.slice(name.length + 2, -'.sql'.length);
    return version.includes('--') ? [] : [version];
  });
}

/** A script `name--from--to.sql` updates an extension. */
function reachableOf(name: string, files: readonly string[]): string[] {
  const all = files.flatMap((file) => {
    if (!file.startsWith(`${name}--`) || !file.endsWith('.sql')) return [];
    return file
      .slice(name.length + 2, -'.sql'.length)
      .split('--')
      .slice(-1);
  });
  return [...new Set(all)];
}
