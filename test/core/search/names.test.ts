import { describe, expect, it } from 'vitest';
import {
  Integrations,
  mentionMatcher,
  namedMatcher,
  nameMatcher,
  spellingsOf,
} from '../../../src/core/search/names.ts';

describe('nameMatcher', () => {
  it.each([
    ['Figma', 'figma', 'alone'],
    ['Raygun', 'Raygun errors', 'among'],
    ['Google Maps', 'is there google maps?', 'alone'],
    ['Asana', 'crear tarea Asana', 'among'],
    ['GoMarble', 'GoMarble', 'alone'],
    ['WayStation', 'waystation', 'alone'],
    ['WayStation', 'use waystation', 'among'],
    ['DefiLlama (unofficial)', 'defillama', 'alone'],
    ['Make', 'make it stop raining over my garden party until six', 'not'],
    ['Google Maps', 'maps', 'not'],
    ['Jam', 'open this jam jar, the lid wont budge', 'not'],
    ['The', 'the', 'not'],
    ['', 'anything', 'not'],
    ['(beta)', 'anything', 'not'],
  ])('%s in "%s": %s', (name, query, naming) => {
    expect(nameMatcher(query)(spellingsOf(name))).toBe(naming);
  });
});

describe('mentionMatcher', () => {
  it.each([
    ['crear una tarea en Asana', 'Asana'],
    ['wie viele Fehler hat Sentry heute', 'Sentry (beta)'],
    ['今日Sentryを見て', 'Sentry'],
    ['no, put it into "Google Drive"', 'Google Drive'],
    ['Render にデプロイする', 'Render'],
    ['Stripeで検索', 'Stripe'],
    ['Render: deploy this', 'Render'],
  ])('knows a name as it is written: %s', (query, name) => {
    expect(mentionMatcher(query)(name)).toBe(true);
  });

  it.each([
    ['Make it snow', 'Make'],
    ['Enough. Make it snow', 'Make'],
    ['we make it snow', 'Make'],
    ['the Makers of snow', 'Make'],
    ['iMake snow', 'Make'],
    ['do we have X', 'X'],
    ['We Had Lentil Soup Again. Third Time This Week', 'Time'],
    ['- Search me', 'Search'],
    ['so? "Search me', 'Search'],
    ['so\n Search me', 'Search'],
    ['reddit and more', 'reddit'],
    ['what is this', ''],
  ])('does not take a word for a name: %s', (query, name) => {
    expect(mentionMatcher(query)(name)).toBe(false);
  });
});

describe('namedMatcher', () => {
  it.each([
    ['jira backlog of the mobile team', 'Jira'],
    ['post it in SLACK', 'Slack (unofficial)'],
    ['my google calendar for monday', 'Google Calendar'],
    ['what is due in Linear', 'Linear'],
    ['a poster in canva', 'Canva'],
  ])('finds in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(name)).toBe(true);
  });

  it.each([
    ['a box for the linear model', 'Box'],
    ['a box for the linear model', 'Linear'],
    ['railway timetable to Bern', 'Railway'],
    ['the email sender is unknown', 'Email Sender'],
    ['two notes', 'Notes'],
    ['slacking off', 'Slack'],
    ['my calendar on google', 'Google Calendar'],
    ['to be or not to be', 'X'],
    ['anything', ''],
  ])('does not find in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(name)).toBe(false);
  });
});

describe('Integrations', () => {
  const heads = [
    {
      id: 'hub',
      integrations: ['Mailchimp', 'Google Forms', 'Trådfri', 'Wave', 'Notion', 'Toggl', 'Aha!', 'Smart Life'],
    },
    { id: 'other-hub', integrations: ['mailchimp', 'freee'] },
    { id: 'plain' },
  ];
  const start = (active: readonly object[] = heads) =>
    new Integrations({ active: () => active.values() as never });
  const idsFor = (query: string, names: readonly string[] = ['Hub', 'Mailer']) => [
    ...start().find(query, 1, names).serverIds,
  ];

  it.each([
    ['add Ann to our mailchimp list', ['hub', 'other-hub']],
    ['who answered my google forms?', ['hub']],
    ['TRÅDFRI lamp off', ['hub']],
    ['freeeで今月の請求書', ['other-hub']],
    ['the invoice in Wave', ['hub']],
    ['wave', ['hub']],
    ['start a timer in toggl', ['hub']],
    ['our Aha! ideas', ['hub']],
    ['heater off in smart life', ['hub']],
  ])('finds who works with what is named: %s', (query, ids) => {
    expect(idsFor(query)).toEqual(ids);
  });

  it.each(['a wave from the beach', 'google the forms', 'mailchimps', 'nothing named', ''])(
    'finds nobody for "%s"',
    query => {
      expect(idsFor(query)).toEqual([]);
    },
  );

  it('says whether the name is all there is', () => {
    expect(start().find('Google forms?', 1, []).isAlone).toBe(true);
    expect(start().find('my Google forms', 1, []).isAlone).toBe(false);
    expect(start().find('', 1, []).isAlone).toBe(false);
  });

  it('leaves a product to a server that is named after it, which its documentation is not', () => {
    expect(idsFor('a page in notion', ['Notion (official)'])).toEqual([]);
    expect(idsFor('a page in notion', ['Tasks in Notion'])).toEqual([]);
    expect(idsFor('a page in notion', ['Notion API Docs', 'Notional', 'Pages (for Notion)'])).toEqual([
      'hub',
    ]);
  });

  it('reads the entries again when the index has changed', () => {
    const active: object[] = [];
    const integrations = start(active);
    expect(integrations.find('mailchimp', 1, []).serverIds.size).toBe(0);
    active.push(...heads);
    expect(integrations.find('mailchimp', 1, []).serverIds.size).toBe(0);
    expect(integrations.find('mailchimp', 2, []).serverIds.size).toBe(2);
  });
});
