// The form of a question: what its fields begin with, what is wrong with what they hold, and the answer
// as the text of a JSON object. The bridge holds the answer to the same bounds once more.

import type { QuestionField } from '../../ipc/bindings';
import { words } from '../../words';

/** Text and numbers as they are typed; the choice that is made, or `''`; all choices that are made. */
export type Value = string | boolean | string[];

export type Values = Record<string, Value>;

const word = words.questions.wrong;

const number = /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i;

/** What each field begins with. */
export function initial(fields: readonly QuestionField[]): Values {
  return Object.fromEntries(fields.map(({ name, input }) => [name, input.value ?? '']));
}

/** What is wrong with a field, or nothing. */
export function problem({ input, required }: QuestionField, value: Value): string | null {
  const { type } = input;
  if (type === 'flag') return null;
  if (type === 'choices') {
    const { length } = value as string[];
    // One that may be left out may be left empty.
    if (length === 0 && !required) return null;
    return length < input.countMin || length > input.countMax ? word.count(String(input.countMin), String(input.countMax)) : null;
  }
  const text = (value as string).trim();
  if (text === '') return required ? word.missing : null;
  if (type === 'choice') return null;
  if (type === 'number') {
    if (!number.test(text)) return word.number;
    const amount = Number(text);
    if (input.whole && !Number.isInteger(amount)) return word.whole;
    if (input.min !== null && amount < Number(input.min)) return word.min(input.min);
    if (input.max !== null && amount > Number(input.max)) return word.max(input.max);
    return null;
  }
  const { length } = [...(value as string)];
  if (length < input.charsMin) return word.short(String(input.charsMin));
  if (length > input.charsMax) return word.long(String(input.charsMax));
  switch (input.format) {
    case 'email':
      return /^[^\s@]+@[^\s@]+$/.test(text) ? null : word.email;
    case 'uri':
      return URL.canParse(text) ? null : word.uri;
    case 'date':
      return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text)) ? null : word.date;
    case 'date_time':
      return /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/.test(text) && !Number.isNaN(Date.parse(text)) ? null : word.dateTime;
    case null:
      return null;
  }
}

/** The answer, without what was left empty. Numbers keep the digits that were typed. */
export function answer(fields: readonly QuestionField[], values: Values): string {
  const parts = fields.flatMap(({ name, input, required }) => {
    const value = values[name] ?? '';
    const empty = Array.isArray(value) ? value.length === 0 && !required : value === '';
    if (empty) return [];
    const text = input.type === 'number' ? (value as string).trim() : JSON.stringify(value);
    return [`${JSON.stringify(name)}:${text}`];
  });
  return `{${parts.join(',')}}`;
}
