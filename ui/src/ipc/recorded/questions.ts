// What servers of the recorded bridge ask: a form with every kind of field, a question of yes or no, a page.

import type { Question, QuestionField } from '../bindings';

type Recorded = Pick<Question, 'server' | 'message' | 'way'>;

const field = (
  name: string,
  label: string,
  input: QuestionField['input'],
  required = false,
  about: string | null = null,
): QuestionField => ({ name, label, about, required, input });

export const recordedQuestions = {
  form: {
    server: 'linear',
    message: 'The issue needs a few details before it can be filed.',
    way: {
      type: 'form',
      fields: [
        field(
          'title',
          'Title',
          { type: 'text', format: null, charsMin: 5, charsMax: 120, value: 'Checkout fails for empty baskets' },
          true,
          'One line that says what is wrong',
        ),
        field(
          'team',
          'Team',
          {
            type: 'choice',
            choices: [
              { value: 'shop', label: 'Shop' },
              { value: 'pay', label: 'Payments' },
            ],
            value: null,
          },
          true,
        ),
        field('estimate', 'Estimate', { type: 'number', whole: true, min: '1', max: '13', value: '' }, false, 'Points, from 1 to 13'),
        field('due', 'Due', { type: 'text', format: 'date', charsMin: 0, charsMax: 100, value: '' }),
        field('labels', 'Labels', {
          type: 'choices',
          choices: [
            { value: 'bug', label: 'Bug' },
            { value: 'ux', label: 'Design' },
            { value: 'perf', label: 'Speed' },
          ],
          countMin: 0,
          countMax: 2,
          value: ['bug'],
        }),
        field('notify', 'Tell the team', { type: 'flag', value: true }, false, 'Posts the issue in the team’s channel'),
      ],
    },
  },
  confirm: {
    server: 'filesystem',
    message: 'Overwrite /home/ada/projects/shop/README.md?',
    way: { type: 'form', fields: [] },
  },
  page: {
    server: 'github',
    message: 'GitHub wants you to allow access to the organisation “acme”.',
    way: {
      type: 'page',
      url: 'https://github.com/orgs/acme/policies/applications/1042?state=9f2c41d7',
      host: 'github.com',
    },
  },
} satisfies Record<string, Recorded>;
