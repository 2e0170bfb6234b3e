/**
 * Divides a script of SQL into its parts, as psql does: statements, commands of psql, and the rows
 * of COPY. Texts have one character for each byte of the script (latin1): in the encodings of
 * servers, each character of the syntax is one byte.
 */

/** A statement. `line` is the number of the line in which it begins. */
type Statement = {
  readonly kind: 'statement';
  readonly text: string;
  /** The statement without comments, without the contents of strings, on one line. */
  readonly outline: string;
  readonly line: number;
};

/** A part of a script. */
export type Part =
  | Statement
  | { readonly kind: 'command'; readonly text: string; readonly line: number }
  /** Rows of COPY, with the line that ends them; there may be several pieces. */
  | { readonly kind: 'rows'; readonly text: string };

/** No rule looks further into a statement. */
const OUTLINE_CHARACTERS = 20_000;

/** Tokens that begin or end a part. Names are tokens, since `$` and `E` may be part of them. */
const TOKEN = new RegExp(
  [
    String.raw`[eE]?'|"`,
    String.raw`\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$`,
    String.raw`--[^\n]*|\/\*|[();\\]`,
    String.raw`[\w\x80-\xff][\w$\x80-\xff]*`,
  ].join('|'),
  'g',
);
const COPY_ROWS = /^COPY\b.* FROM STDIN\b/i;
const ROUTINE = /^\s*CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE)\b/i;
const PLAIN_STRINGS = /\bstandard_conforming_strings\s*(?:=|TO)\s*'?(on|off|true|false)\b/i;

type Quote =
  | { readonly kind: 'string'; readonly hasEscapes: boolean }
  | { readonly kind: 'name' }
  | { readonly kind: 'dollar'; readonly tag: string }
  | { readonly kind: 'comment'; depth: number };

/** Divides a script, of which it gets some lines at a time. */
class Scanner {
  private quote: Quote | null = null;
  private text = '';
  private outline = '';
  private line = 1;
  private parentheses = 0;
  private blocks = 0;
  private isInRows = false;
  private hasEscapes = false;

  /** The parts that end in these lines. @param lines whole lines, except the last of the script */
  *scan(lines: string): Generator<Part> {
    let at = 0;
    while (at < lines.length) {
      if (this.isInRows) {
        const { end, isLast } = endOfRows(lines, at);
        yield { kind: 'rows', text: lines.slice(at, end) };
        this.line += countLines(lines.slice(at, end));
        this.isInRows = !isLast;
        at = end;
        continue;
      }
      const begin = this.quote === null ? at : this.passQuote(this.quote, lines, at);
      if (begin === null) return;
      TOKEN.lastIndex = begin;
      const found = TOKEN.exec(lines);
      const before = lines.slice(begin, found?.index ?? lines.length);
      this.text += before;
      this.sketch(before);
      if (found === null) return;
      const [token] = found;
      at = TOKEN.lastIndex;
      if (token === '\\') {
        const end = lines.indexOf('\n', at);
        at = end < 0 ? lines.length : end;
        const command = lines.slice(found.index, at).trimEnd();
        yield { kind: 'command', text: command, line: this.line + countLines(this.text) };
        continue;
      }
      const part = this.read(token);
      if (part === null) continue;
      // Rows begin in the next line.
      const end = this.isInRows ? (after(lines, '\n', at) ?? lines.length) : at;
      this.line += countLines(lines.slice(at, end));
      yield { ...part, text: part.text + lines.slice(at, end) };
      at = end;
    }
  }

  /** Gives the part that is left at the end of the script. */
  *end(): Generator<Part> {
    const part = this.endStatement();
    if (part !== null) yield part;
  }

  private sketch(piece: string): void {
    if (this.outline.length < OUTLINE_CHARACTERS) this.outline += piece;
  }

  /** @returns the place after the quote; null: it does not end in these lines */
  private passQuote(quote: Quote, lines: string, at: number): number | null {
    const end = endOfQuote(quote, lines, at);
    const inside = lines.slice(at, end ?? lines.length);
    this.text += inside;
    if (quote.kind === 'name') this.sketch(inside);
    if (end !== null) this.quote = null;
    return end;
  }

  /** @returns the statement that ends with the token; null: none does */
  private read(token: string): Statement | null {
    this.text += token;
    if (token === ';' && this.parentheses === 0 && this.blocks === 0) return this.endStatement();
    if (token === "'" || /^e'$/i.test(token)) {
      this.quote = { kind: 'string', hasEscapes: this.hasEscapes || token.length === 2 };
      this.sketch("''");
    } else if (token === '"') {
      this.quote = { kind: 'name' };
      this.sketch(token);
    } else if (token.startsWith('$')) {
      this.quote = { kind: 'dollar', tag: token };
      this.sketch("''");
    } else if (token === '/*') this.quote = { kind: 'comment', depth: 1 };
    else if (token.startsWith('--')) this.sketch(' ');
    else {
      this.sketch(token);
      if (token === '(') this.parentheses++;
      else if (token === ')') this.parentheses = Math.max(0, this.parentheses - 1);
      else if (/^(begin|case|end)$/i.test(token))
        this.blocks = blocksAfter(token, this.blocks, this.outline);
    }
    return null;
  }

  private endStatement(): Statement | null {
    const { text } = this;
    const outline = this.outline.replaceAll(/\s+/g, ' ').replace(/ ?;$/, '').trim();
    const line = this.line + countLines(text.slice(0, text.search(/\S|$/)));
    this.line += countLines(text);
    [this.text, this.outline, this.parentheses, this.blocks] = ['', '', 0, 0];
    if (outline === '') return null;
    this.isInRows = COPY_ROWS.test(outline);
    const strings = /^SET /i.test(outline) ? PLAIN_STRINGS.exec(text)?.[1] : undefined;
    if (strings !== undefined) this.hasEscapes = /^(off|false)$/i.test(strings);
    return { kind: 'statement', text, outline, line };
  }
}

/** The place after a quote; null: it does not end in these lines. */
function endOfQuote(quote: Quote, lines: string, at: number): number | null {
  switch (quote.kind) {
    case 'string':
      return endOfString(lines, at, quote.hasEscapes);
    case 'name':
      return after(lines, '"', at);
    case 'dollar':
      return after(lines, quote.tag, at);
    case 'comment':
      return endOfComment(lines, at, quote);
  }
}

/** How many blocks of a routine are open: its body may be statements, up to the last END. */
function blocksAfter(word: string, blocks: number, outline: string): number {
  const known = word.toLowerCase();
  if (known === 'begin') return ROUTINE.test(outline.replaceAll(/\s+/g, ' ')) ? blocks + 1 : blocks;
  if (blocks === 0) return 0;
  return known === 'case' ? blocks + 1 : blocks - 1;
}

/** The place after the next occurrence; null: there is none. */
function after(lines: string, what: string, at: number): number | null {
  const found = lines.indexOf(what, at);
  return found < 0 ? null : found + what.length;
}

function endOfString(lines: string, begin: number, hasEscapes: boolean): number | null {
  const edge = hasEscapes ? /['\\]/g : /'/g;
  edge.lastIndex = begin;
  for (let found = edge.exec(lines); found !== null; found = edge.exec(lines)) {
    const isDouble = found[0] === '\\' || lines[edge.lastIndex] === "'";
    if (!isDouble) return edge.lastIndex;
    edge.lastIndex++;
  }
  return null;
}

/** Comments may be in each other. */
function endOfComment(lines: string, begin: number, comment: { depth: number }): number | null {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = begin;
  for (let found = edge.exec(lines); found !== null; found = edge.exec(lines)) {
    comment.depth += found[0] === '/*' ? 1 : -1;
    if (comment.depth === 0) return edge.lastIndex;
  }
  return null;
}

function endOfRows(lines: string, begin: number): { end: number; isLast: boolean } {
  for (let at = lines.indexOf('\\.', begin); at >= 0; at = lines.indexOf('\\.', at + 1)) {
    const isFirst = at === begin || lines[at - 1] === '\n';
    const [rest] = /^\r?(?:\n|$)/.exec(lines.slice(at + 2, at + 4)) ?? [];
    if (isFirst && rest !== undefined) return { end: at + 2 + rest.length, isLast: true };
  }
  return { end: lines.length, isLast: false };
}

function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count++;
  return count;
}

/** The parts of a script. */
export async function* partsOf(script: AsyncIterable<Buffer | string>): AsyncGenerator<Part> {
  const scanner = new Scanner();
  let isBegin = true;
  for await (const lines of linesOf(script)) {
    yield* scanner.scan(isBegin ? lines.replace(BYTE_ORDER_MARK, '') : lines);
    isBegin = false;
  }
  yield* scanner.end();
}

const BYTE_ORDER_MARK = /^\xef\xbb\xbf/;

/** Whole lines, many at a time. */
async function* linesOf(script: AsyncIterable<Buffer | string>): AsyncGenerator<string> {
  let rest: string[] = [];
  for await (const chunk of script) {
    const text = typeof chunk === 'string' ? chunk : chunk.toString('latin1');
    const end = text.lastIndexOf('\n') + 1;
    if (end > 0) yield rest.join('') + text.slice(0, end);
    if (end > 0) rest = [];
    rest.push(text.slice(end));
  }
  yield rest.join('');
}
