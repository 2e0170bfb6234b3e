/** Restore certificates: what verifications of backups have measured, signed. */
import type { Schemas } from '@howdah/client';
import { canonicalJson } from '@howdah/contract/canonical';
import { certificateFacts, certificatePage } from '@howdah/contract/certificate-page';
import type { Command } from 'commander';
import { readFile, writeFile } from 'node:fs/promises';
import { verifyCertificate } from '../certificate.ts';
import { verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findPath } from '../find.ts';
import { relative } from '../moment.ts';
import { note, say, sayJson, showAs, showList, type View } from '../output.ts';

const PATH = '/projects/{project_id}/services/{service_id}/backups/certificates';

const CERTIFICATE_VIEW: View<Schemas['CertificateSummary']> = {
  noun: 'certificate',
  columns: [
    ['ID', ({ certificate_id: id }) => id],
    ['ISSUED', ({ issued_at: at }) => relative(at)],
    ['BACKUP', ({ backup }) => backup.label],
    ['WHERE', ({ backup }) => backup.repository ?? backup.place],
  ],
};

type Certifying = Printing & { id?: string; json?: true; pdf?: string };

export function addCertificates(backup: Command): void {
  verb(backup, 'certificates <service>', {
    does: 'List the restore certificates of a service, newest first.',
    example: 'howdah backup certificates orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const { params } = await findPath(connection, name);
    const found = await answered(connection.client.GET(PATH, { params }));
    await showList(output, found, CERTIFICATE_VIEW);
  });

  verb(backup, 'certificate <service>', {
    does:
      'Show the newest restore certificate of a service: what the last verification of a ' +
      'backup has measured, signed.',
    example: 'howdah backup certificate orders --pdf orders.pdf',
    takes: ['output'],
  })
    .option('--id <id>', 'another one, which howdah backup certificates lists')
    .option('--json', 'the signed document on one line, as -o json has it on many')
    .option('--pdf <file>', 'write a page for people, with the signed document attached')
    .action(async (name: string, { output, id, json, pdf }: Certifying) => {
      const connection = await connect();
      const { params } = await findPath(connection, name);
      const signed = await answered(
        connection.client.GET(`${PATH}/{certificate_id}`, {
          params: {
            path: {
              ...params.path,
              certificate_id:
                id ?? newestOf(await answered(connection.client.GET(PATH, { params }))),
            },
          },
        }),
      );
      if (pdf !== undefined) {
        await writeFile(pdf, certificatePage(canonicalJson(signed)));
        note(`${pdf}: certificate ${signed.certificate.certificate_id}`);
      } else if (json === true) sayJson(signed);
      else await showAs(output, signed, 'certificate', () => sayCertificate(signed));
    });

  verb(backup, 'certificate-key', {
    does: 'Print the public keys that restore certificates are verified with, the newest first.',
    example: 'howdah backup certificate-key > certificates.pem',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client } = await connect();
    const keys = await answered(client.GET('/certificate-keys'));
    await showAs(output, keys, 'key', () => {
      for (const { public_key: pem } of keys) say(pem.trimEnd());
    });
    if (keys.length === 0)
      note(
        'There is none yet: the first verification of a backup makes it (howdah backup verify).',
      );
  });

  verb(backup, 'verify-certificate <file>', {
    does:
      'Verify a restore certificate, as JSON or PDF, without its installation: that it says ' +
      'what was signed.',
    example: 'howdah backup verify-certificate orders.pdf --key certificates.pem',
  })
    .requiredOption(
      '--key <file>',
      'public keys in PEM, which howdah backup certificate-key prints',
    )
    .action(async (file: string, options: { key: string }) => {
      const keys = await readFile(options.key, 'utf8');
      const signed = verifyCertificate(await readFile(file), keys);
      sayCertificate(signed);
      say(`verified: all of this was signed with the key ${signed.certificate.key_id}`);
    });
}

function newestOf([newest]: readonly Schemas['CertificateSummary'][]): string {
  if (newest !== undefined) return newest.certificate_id;
  throw new Failure(
    'the service has no restore certificate: each verification of a backup that succeeds ' +
      'issues one (howdah backup verify)',
    'notFound',
  );
}

function sayCertificate(signed: Parameters<typeof certificateFacts>[0]): void {
  const facts = certificateFacts(signed);
  const width = Math.max(...facts.map(([name]) => name.length));
  for (const [name, value] of facts) say(`${name.padEnd(width)}  ${value}`);
}
