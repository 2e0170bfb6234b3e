// Runs dependency-cruiser with the arguments given, on the TypeScript 5 of tools/codegen: it needs
// the compiler as a JavaScript library, which TypeScript 7 is not.
import Module, { createRequire, register } from 'node:module';
import { pathToFileURL } from 'node:url';

const library = createRequire(new URL('../codegen/package.json', import.meta.url)).resolve(
  'typescript',
);
const manifest = library.replace(/lib\/typescript\.js$/, 'package.json');
const required = { typescript: library, 'typescript/package.json': manifest };

/* oxlint-disable no-underscore-dangle -- the name is Node's */
const resolveFilename = Module._resolveFilename;
Module._resolveFilename = (request, ...rest) =>
  required[request] ?? resolveFilename(request, ...rest);
/* oxlint-enable no-underscore-dangle */

const url = JSON.stringify(pathToFileURL(library).href);
const hook = `export const resolve = (specifier, context, next) =>
  specifier === 'typescript' ? { url: ${url}, shortCircuit: true } : next(specifier, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

const cruiser = new URL('../../node_modules/dependency-cruiser/', import.meta.url);
await import(new URL('bin/dependency-cruise.mjs', cruiser).href);
