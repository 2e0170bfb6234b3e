/**
 * A restore certificate as text and as a page of PDF 1.7, with the signed document attached. The
 * same document makes the same bytes, so that a page can be compared with one that is made again.
 */
import type { RestoreCertificate, SignedCertificate } from './schemas/certificates.ts';

type Facts = readonly (readonly [name: string, value: string])[];

/** The lines of a certificate for people. */
export function certificateFacts({ certificate, signature }: SignedCertificate): Facts {
  const { service_name: name, service_id: id, project_id: project, region_code } = certificate;
  const { began, ended, recovery_point: point, rto_seconds: rto, rpo_seconds: rpo } = certificate;
  return [
    ['service', `${name} (${id}) of project ${project}, region ${region_code}`],
    ['backup', placeOf(certificate.backup)],
    ['restored', `from ${began} to ${ended}`],
    ['last transaction', point ?? 'not known'],
    ['RPO', rpo === null ? 'not known' : `${rpo} s: the most that the restored copy lacked`],
    ['RTO', rto === null ? 'not measured' : `${rto} s: from the begin to the first query`],
    ['contents', contentsOf(certificate)],
    ['page checksums', pagesOf(certificate)],
    ...certificate.checks.map((check) => [check.name, check.detail] as const),
    ['PostgreSQL', certificate.postgresql_version ?? 'version not known'],
    ['Howdah', certificate.howdah_version],
    ['issued', `${certificate.issued_at}, certificate ${certificate.certificate_id}`],
    ['operation', certificate.operation_id],
    ['key', certificate.key_id],
    ['signature', signature],
  ];
}

const placeOf = ({ place, repository, label, taken }: RestoreCertificate['backup']): string =>
  `${place}${repository === null ? '' : ` ${repository}`}: ${label}, of ${taken}`;

function contentsOf({ contents }: RestoreCertificate): string {
  if (contents === null) return 'not counted';
  const { databases, tables, rows, uncounted_tables: left } = contents;
  const rest = left === 0 ? '' : `; tables that were not counted: ${left}`;
  return `${rows} rows in ${tables - left} tables of ${databases} databases${rest}`;
}

const pagesOf = ({ pages }: RestoreCertificate): string =>
  pages === null ? 'not verified' : `right in ${pages.pages} pages of ${pages.files} files`;

// The page. Texts are a tenant's: they are cut, and only printable characters of Latin-1 are drawn.

const [WIDTH, HEIGHT, MARGIN, LEADING] = [595, 842, 50, 12];
/** In characters of Courier at 9 points, which are all 5.4 wide. */
const [NAME_WIDTH, LINE_WIDTH, VALUE_LENGTH] = [26, 91, 390];
const ATTACHMENT = 'certificate.json';
const NOTE =
  'Anybody can write such a page. This command compares it with the signed document that is ' +
  'attached to it: howdah backup verify-certificate FILE --key FILE';

/**
 * @param text the signed document, in its canonical form
 * @returns the bytes of a file
 */
export function certificatePage(text: string): Uint8Array<ArrayBuffer> {
  const signed: SignedCertificate = JSON.parse(text);
  const lines = certificateFacts(signed).flatMap(([name, value]) =>
    wrapped(drawable(value).slice(0, VALUE_LENGTH), LINE_WIDTH - NAME_WIDTH).map(
      (part, index) => `${(index === 0 ? drawable(name) : '').padEnd(NAME_WIDTH)}${part}`,
    ),
  );
  lines.push('', ...wrapped(NOTE, LINE_WIDTH));
  const height = Math.max(HEIGHT, 2 * MARGIN + 40 + lines.length * LEADING);
  const attached = bytesOf(text);
  const content = contentOf(lines, height);
  return fileOf([
    '<< /Type /Catalog /Pages 2 0 R /AF [6 0 R] ' +
      `/Names << /EmbeddedFiles << /Names [(${ATTACHMENT}) 6 0 R] >> >> >>`,
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${WIDTH} ${height}] /Contents 4 0 R ` +
      `/Resources << /Font << /B ${fontOf('Helvetica-Bold')} /C ${fontOf('Courier')} >> >> >>`,
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    `${EMBEDDED}${attached.length} >>\nstream\n${attached}\nendstream`,
    `<< /Type /Filespec /F (${ATTACHMENT}) /UF (${ATTACHMENT}) /AFRelationship /Source ` +
      '/EF << /F 5 0 R >> >>',
  ]);
}

const EMBEDDED = '<< /Type /EmbeddedFile /Subtype /application#2Fjson /Length ';

/** The document that is attached to a page of {@link certificatePage}; null: there is none. */
export function attachedTo(page: Uint8Array): Uint8Array | null {
  const text = Array.from(page, (byte) => String.fromCharCode(byte)).join('');
  const at = text.indexOf(EMBEDDED);
  const [head = '', length] =
    /^(\d{1,9}) >>\nstream\n/.exec(text.slice(at + EMBEDDED.length)) ?? [];
  if (at === -1 || length === undefined) return null;
  const begin = at + EMBEDDED.length + head.length;
  return page.slice(begin, begin + Number(length));
}

const fontOf = (name: string): string =>
  `<< /Type /Font /Subtype /Type1 /BaseFont /${name} /Encoding /WinAnsiEncoding >>`;

function contentOf(lines: readonly string[], height: number): string {
  const top = height - MARGIN - 20;
  const shown = lines.map((line) => `(${line.replaceAll(/[\\()]/g, '\\$&')}) '`);
  return (
    `BT /B 20 Tf ${MARGIN} ${top} Td (Restore certificate) Tj ET\n` +
    `BT /C 9 Tf ${LEADING} TL ${MARGIN} ${top - 8} Td\n${shown.join('\n')}\nET`
  );
}

/** Other characters become escapes. */
const drawable = (text: string): string =>
  text.replaceAll(/[^\u0020-\u007e\u00a1-\u00ac\u00ae-\u00ff]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u{${code.toString(16)}}`;
  });

/** Lines end at spaces, but for words that are longer than a line. */
const wrapped = (text: string, width: number): string[] =>
  text.match(new RegExp(`\\S.{0,${width - 1}}(?= |$)|\\S{${width}}`, 'g')) ?? [''];

/** Bytes as characters up to 0xff. */
const bytesOf = (text: string): string =>
  Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join('');

/** @param objects of the file, whose first is the catalog; characters are bytes */
function fileOf(objects: readonly string[]): Uint8Array<ArrayBuffer> {
  let text = '%PDF-1.7\n%\u00e2\u00e3\u00cf\u00d3\n';
  const offsets = objects.map((object, index) => {
    const offset = text.length;
    text += `${index + 1} 0 obj\n${object}\nendobj\n`;
    return offset;
  });
  const entries = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`);
  const size = objects.length + 1;
  const xref = text.length;
  text +=
    `xref\n0 ${size}\n0000000000 65535 f \n${entries.join('')}` +
    `trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
