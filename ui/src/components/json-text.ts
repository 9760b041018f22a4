// JSON as text, read into a tree for showing. Numbers keep every digit that was written, and an error
// says where it is: `JSON.parse` does neither.

export type JsonNode =
  | { kind: 'object'; entries: { key: string; value: JsonNode }[] }
  | { kind: 'array'; items: JsonNode[] }
  | { kind: 'string'; value: string }
  /** A number, `true`, `false` or `null`, as written. */
  | { kind: 'word'; text: string };

export type JsonErrorKind = 'end' | 'value' | 'key' | 'colon' | 'comma' | 'rest' | 'string' | 'escape' | 'control' | 'number' | 'deep';

export interface JsonError {
  kind: JsonErrorKind;
  /** From 1. */
  line: number;
  /** From 1. */
  column: number;
}

export type JsonResult = { node: JsonNode; error: null } | { node: null; error: JsonError };

/** Deeper values would overflow the stack of whoever shows them. */
const DEPTH_MAX = 200;

const escapes: Record<string, string> = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

class Problem {
  constructor(
    readonly kind: JsonErrorKind,
    readonly at: number,
  ) {}
}

export function parseJson(text: string): JsonResult {
  const reader = new Reader(text);
  try {
    const node = reader.value(0);
    reader.space();
    if (reader.at < text.length) throw new Problem('rest', reader.at);
    return { node, error: null };
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    const before = text.slice(0, problem.at).split('\n');
    return { node: null, error: { kind: problem.kind, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 } };
  }
}

/** The text again with two spaces a level; text that is not JSON comes back unchanged. */
export function prettyJson(text: string): string {
  const { node } = parseJson(text);
  return node ? print(node, '') : text;
}

function print(node: JsonNode, indent: string): string {
  const deeper = `${indent}  `;
  switch (node.kind) {
    case 'word':
      return node.text;
    case 'string':
      return JSON.stringify(node.value);
    case 'array':
      if (node.items.length === 0) return '[]';
      return `[\n${node.items.map((item) => deeper + print(item, deeper)).join(',\n')}\n${indent}]`;
    case 'object':
      if (node.entries.length === 0) return '{}';
      return `{\n${node.entries.map(({ key, value }) => `${deeper}${JSON.stringify(key)}: ${print(value, deeper)}`).join(',\n')}\n${indent}}`;
  }
}

class Reader {
  at = 0;

  constructor(readonly text: string) {}

  space(): void {
    while (/[ \t\n\r]/.test(this.text.charAt(this.at))) this.at += 1;
  }

  value(depth: number): JsonNode {
    if (depth > DEPTH_MAX) throw new Problem('deep', this.at);
    this.space();
    const char = this.text.charAt(this.at);
    if (char === '') throw new Problem('end', this.at);
    if (char === '{') return this.object(depth);
    if (char === '[') return this.array(depth);
    if (char === '"') return { kind: 'string', value: this.string() };
    return this.word();
  }

  private object(depth: number): JsonNode {
    const entries: { key: string; value: JsonNode }[] = [];
    this.at += 1;
    this.space();
    if (this.take('}')) return { kind: 'object', entries };
    for (;;) {
      this.space();
      if (this.text.charAt(this.at) !== '"') throw new Problem(this.ended() ? 'end' : 'key', this.at);
      const key = this.string();
      this.space();
      if (!this.take(':')) throw new Problem(this.ended() ? 'end' : 'colon', this.at);
      entries.push({ key, value: this.value(depth + 1) });
      this.space();
      if (this.take('}')) return { kind: 'object', entries };
      if (!this.take(',')) throw new Problem(this.ended() ? 'end' : 'comma', this.at);
    }
  }

  private array(depth: number): JsonNode {
    const items: JsonNode[] = [];
    this.at += 1;
    this.space();
    if (this.take(']')) return { kind: 'array', items };
    for (;;) {
      items.push(this.value(depth + 1));
      this.space();
      if (this.take(']')) return { kind: 'array', items };
      if (!this.take(',')) throw new Problem(this.ended() ? 'end' : 'comma', this.at);
    }
  }

  private string(): string {
    const start = this.at;
    let value = '';
    this.at += 1;
    for (;;) {
      const char = this.text.charAt(this.at);
      if (char === '' || char === '\n') throw new Problem('string', start);
      if (char < ' ') throw new Problem('control', this.at);
      this.at += 1;
      if (char === '"') return value;
      if (char !== '\\') {
        value += char;
        continue;
      }
      const escape = this.text.charAt(this.at);
      const plain = escapes[escape];
      const code = /^u[0-9a-fA-F]{4}/.exec(this.text.slice(this.at, this.at + 5));
      if (plain !== undefined) {
        value += plain;
        this.at += 1;
      } else if (code) {
        value += String.fromCharCode(parseInt(code[0].slice(1), 16));
        this.at += 5;
      } else throw new Problem('escape', this.at - 1);
    }
  }

  private word(): JsonNode {
    const start = this.at;
    const text = /^[^\s,:[\]{}"]*/.exec(this.text.slice(start, start + 4096))?.[0] ?? '';
    if (/^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)$/.test(text)) {
      this.at += text.length;
      return { kind: 'word', text };
    }
    throw new Problem(/^[-+.\d]/.test(text) ? 'number' : 'value', start);
  }

  private take(char: string): boolean {
    if (this.text.charAt(this.at) !== char) return false;
    this.at += 1;
    return true;
  }

  private ended(): boolean {
    return this.at >= this.text.length;
  }
}
