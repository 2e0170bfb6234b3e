/** The comparison of two databases, for programs beside the tools. */
export { readContents, type Contents, type Read } from './contents.ts';
export { diffRows, diffSchemas, type SchemaDiff } from './diff.ts';
