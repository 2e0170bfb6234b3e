import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { parseAllDocuments } from 'yaml';

const REPOSITORY = new URL('../../../../../', import.meta.url);
const readText = (path: string): Promise<string> => readFile(new URL(path, REPOSITORY), 'utf8');

const texts = Type.Array(Type.String());
const ROLE = Type.Object({
  kind: Type.Literal('ClusterRole'),
  rules: Type.Array(Type.Object({ apiGroups: texts, resources: texts, verbs: texts })),
});

/** The manual names these in its text. */
const TO_EXAMINE = [
  'nodes: list',
  'storageclasses.storage.k8s.io: list',
  'priorityclasses.scheduling.k8s.io: get',
  'volumesnapshotclasses.snapshot.storage.k8s.io: list',
  'customresourcedefinitions.apiextensions.k8s.io: get',
];

test('the rights in the manifests of the control plane are those of the manual', async () => {
  const [, table = ''] = /## Rights\n(.*?)\n## /s.exec(await readText('docs/kubernetes.md')) ?? [];
  const rows = [...table.matchAll(/^\| ([a-z0-9/.]+) \| ([a-z, ]+) \|$/gm)]
    .map(([, resource, verbs]) => `${resource}: ${verbs}`)
    .filter((row) => row !== 'resource: verbs');
  const granted = parseAllDocuments(await readText('deploy/kubernetes/rights.yaml'))
    .map((document): unknown => document.toJS())
    .filter((object) => Value.Check(ROLE, object))
    .flatMap(({ rules }) => rules)
    .map(({ apiGroups: [group = ''], resources: [resource = ''], verbs }) => {
      return `${nameOf(resource, group)}: ${verbs.join(', ')}`;
    });
  expect(granted.toSorted()).toEqual([...rows, ...TO_EXAMINE].toSorted());
});

/** As the manual has it: the group is before the subresource. */
function nameOf(resource: string, group: string): string {
  if (group === '') return resource;
  const [plural = '', subresource] = resource.split('/');
  return `${plural}.${group}${subresource === undefined ? '' : `/${subresource}`}`;
}
