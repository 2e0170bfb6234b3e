/** Files of environment variables (`.env`), as dotenv, Docker and shells read them. */

/**
 * The text of a file with one variable set: in its place if it is there, else at the end. All other
 * lines stay as they are.
 *
 * @param value without line breaks
 */
export function withVariable(text: string, name: string, value: string): string {
  const line = `${name}=${quoted(value)}`;
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n');
  const isOurs = (one: string): boolean => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`).test(one);
  const place = lines.findIndex(isOurs);
  if (place === -1) return `${[...lines, line].join('\n')}\n`;
  const prefix = /^\s*export\s/.test(lines[place] ?? '') ? 'export ' : '';
  // The last assignment of a name counts: others of it would undo this one.
  const kept = lines.filter((one, index) => index <= place || !isOurs(one));
  return `${kept.with(place, `${prefix}${line}`).join('\n')}\n`;
}

/** In double quotes, in which dotenv and shells treat few characters in their own way. */
const quoted = (value: string): string =>
  /^[\w./:@%?=+,~-]*$/.test(value) ? value : `"${value.replaceAll(/["\\$`]/g, String.raw`\$&`)}"`;
