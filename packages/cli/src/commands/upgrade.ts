import { VERSION } from '@howdah/contract/version';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { formOf, ROOT, upgradeOf } from '../installation-form.ts';
import { say } from '../output.ts';

const FORMS = {
  clone: 'a clone of the repository',
  npm: 'a package of npm',
  npx: 'a package of npm, started by npx',
  deb: 'a package of Debian',
  image: 'an image',
} as const;

export function addUpgrade(program: Command): void {
  verb(program, 'upgrade', {
    does:
      'Show how Howdah was installed, and the commands that bring a newer release. ' +
      'Databases keep running during an upgrade.',
    example: 'howdah upgrade',
  }).action(() => {
    say(`Howdah ${VERSION}, ${FORMS[formOf(ROOT)]} in ${ROOT}`);
    for (const line of upgradeOf(ROOT)) say(`  ${line}`);
  });
}
