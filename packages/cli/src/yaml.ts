/** Values as YAML. The library is as large as the rest of the program, so it is loaded late. */
import { escapeInJson, makeVisible } from '@howdah/contract/text';
import { Document, visit } from 'yaml';

/** Many parsers still read YAML 1.1, where `no` and times are other types: they are quoted. */
export function yamlOf(value: unknown): string {
  const document = new Document(value, { compat: 'yaml-1.1' });
  visit(document, {
    Scalar: (_key, node) => {
      // Escapes have an effect on terminals only.
      if (typeof node.value === 'string' && makeVisible(node.value) !== node.value)
        node.type = 'QUOTE_DOUBLE';
    },
  });
  return escapeInJson(document.toString({ lineWidth: 0 })).trimEnd();
}
