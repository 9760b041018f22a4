import { expect, test } from 'vitest';
import type { QuestionField, QuestionInput } from '../../ipc/bindings';
import { answer, initial, problem } from './form';

function field(name: string, input: QuestionInput, required = false): QuestionField {
  return { name, label: name, about: null, required, input };
}

const text = (more: Partial<Extract<QuestionInput, { type: 'text' }>> = {}): QuestionInput => ({
  type: 'text',
  format: null,
  charsMin: 0,
  charsMax: 100,
  value: '',
  ...more,
});
const number = (more: Partial<Extract<QuestionInput, { type: 'number' }>> = {}): QuestionInput => ({
  type: 'number',
  whole: false,
  min: null,
  max: null,
  value: '',
  ...more,
});
const choices = [
  { value: 'a', label: 'A' },
  { value: 'b', label: 'B' },
];

test('fields begin with what the server proposes', () => {
  const fields = [
    field('t', text({ value: 'x' })),
    field('n', number({ value: '0.10' })),
    field('f', { type: 'flag', value: true }),
    field('c', { type: 'choice', choices, value: null }),
    field('m', { type: 'choices', choices, countMin: 0, countMax: 2, value: ['b'] }),
  ];
  expect(initial(fields)).toEqual({ t: 'x', n: '0.10', f: true, c: '', m: ['b'] });
});

test.each([
  [field('x', text(), true), ' ', 'needs'],
  [field('x', text()), '', null],
  [field('x', text({ charsMin: 3 })), 'ab', 'at least 3'],
  [field('x', text({ charsMax: 2 })), 'äöü', 'at most 2'],
  [field('x', text({ format: 'email' })), 'ada', 'mail'],
  [field('x', text({ format: 'email' })), 'ada@example.com', null],
  [field('x', text({ format: 'uri' })), 'nowhere', 'address'],
  [field('x', text({ format: 'date' })), '2026-13-30', '2026-11-30'],
  [field('x', text({ format: 'date' })), '2026-11-30', null],
  [field('x', text({ format: 'date_time' })), 'noon', '2026-11-30T'],
  [field('x', number()), '1,5', 'number'],
  [field('x', number()), '007', 'number'],
  [field('x', number({ whole: true })), '1.5', 'whole'],
  [field('x', number({ min: '0', max: '9' })), '-1', 'at least 0'],
  [field('x', number({ min: '0', max: '9' })), '10', 'at most 9'],
  [field('x', number({ min: '0', max: '9' })), '9', null],
  [field('x', { type: 'choice', choices, value: null }, true), '', 'needs'],
  [field('x', { type: 'flag', value: false }, true), false, null],
  [field('x', { type: 'choices', choices, countMin: 1, countMax: 1, value: [] }), ['a', 'b'], '1'],
  [field('x', { type: 'choices', choices, countMin: 1, countMax: 1, value: [] }), [], null],
  [field('x', { type: 'choices', choices, countMin: 1, countMax: 1, value: [] }, true), [], '1'],
] as const)('%j with %j', (of, value, wrong) => {
  const found = problem(of, value as string);
  if (wrong === null) expect(found).toBeNull();
  else expect(found).toContain(wrong);
});

test('the answer has what was filled in, and numbers keep their digits', () => {
  const fields = [
    field('name', text()),
    field('empty', text()),
    field('price', number()),
    field('sure', { type: 'flag', value: false }),
    field('of', { type: 'choices', choices, countMin: 0, countMax: 2, value: [] }, true),
  ];
  const values = { name: 'A "b"', empty: '', price: ' 0.10 ', sure: false, of: [] };
  expect(answer(fields, values)).toBe('{"name":"A \\"b\\"","price":0.10,"sure":false,"of":[]}');
});
