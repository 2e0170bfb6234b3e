import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { AREAS, messagesPage, textsIn } from './messages.ts';

/** A text of each area, by the title of the area. */
const SAMPLES: Readonly<Record<string, string>> = {
  'Validation and general errors of the API': '{inside}: missing; the {context} must have it',
  'Operation steps': 'route gateway to primary',
  'Warnings, problems and remedies': '{gb} of {gb} GB (storage_gb) are used',
  'Findings of howdah doctor': 'not root: databases run as this user',
  'Findings of the integrity check': 'service {id} has no directory',
  'Control log': 'could not release a claim',
  'Startup of the control plane': 'start the metadata database',
  'Errors of the API and the engine': 'the server is not running',
  'Sentences of the API and its services': 'List all services, oldest first',
  'Descriptions of the contract': 'nothing but waiting',
  'Command line': 'Stop the control plane; the databases keep running unless --databases is given.',
  'Errors of the client': 'service {service_id} no longer exists, and will not become {target}',
  'Tools of the MCP server': 'List services',
  'Web console': 'Page not found',
};

const page = messagesPage(fileURLToPath(new URL('../..', import.meta.url)));

describe('docs/messages.md', () => {
  test.each(AREAS.map(({ title }) => title))('has a known text of: %s', (title) => {
    const [, section = ''] = page.split(`\n## ${title}\n`);
    expect(section.split('\n## ')[0]).toContain(`\n    ${SAMPLES[title] ?? 'no sample'}\n`);
  });

  test('shows a sum of several strings once, and the texts in its placeholders', () => {
    const area = { title: '', files: /./, sentences: true } as const;
    const source = `
      const why =
        \`the first \${isLate ? 'is too late' : ''} part, \` +
        'the second part, ' + 'the end';
    `;
    expect(textsIn('a.ts', source, area)).toEqual([
      'the first {value} part, the second part, the end',
      'is too late',
    ]);
  });

  test('shows values as placeholders, and neither keys nor separators', () => {
    const area = { title: '', files: /./, calls: /(Error|Failure)$/, properties: /^label$/ };
    const source = `
      throw new ApiError('NOT_FOUND', \`no \${what.kind} \${String(id)}: \` + listOf(ids, ', and'));
      throw new Failure(isGone ? 'it is gone' : 'it is late', 'usage');
      const look = <Pill label="not ready" className="a wide one">a {b} of them</Pill>;
      call('not shown');
    `;
    expect(textsIn('a.tsx', source, area)).toEqual([
      'no {kind} {id}: {listOf}',
      'it is gone',
      'it is late',
      'not ready',
      'of them',
    ]);
  });
});
