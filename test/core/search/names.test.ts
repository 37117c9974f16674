import { describe, expect, it } from 'vitest';
import {
  calledMatcher,
  formsOf,
  Integrations,
  mentionMatcher,
  namedMatcher,
  placedMatcher,
  withoutAddresses,
} from '../../../src/core/search/names.ts';

describe('withoutAddresses', () => {
  it.each([
    ['write to Ann.B+x@Slack.com, please', 'write to  , please'],
    ['把邮件发到ann@lipowa.pl并在Notion里记录', '把邮件发到 并在Notion里记录'],
    ['ask @jira', 'ask @jira'],
    ['in monday.com', 'in monday.com'],
    ['to josé@slack.com', 'to  '],
  ])('makes of "%s" "%s"', (query, expected) => {
    expect(withoutAddresses(query)).toBe(expected);
  });
});

describe('calledMatcher', () => {
  it.each([
    ['Figma', 'figma', true],
    ['Raygun', 'Raygun errors', false],
    ['Google Maps', 'is there google maps?', true],
    ['GoMarble', 'GoMarble', true],
    ['WayStation', 'waystation', true],
    ['DefiLlama (unofficial)', 'defillama', true],
    ['Google Maps', 'maps', false],
    ['The', 'the', false],
    ['', 'anything', false],
    ['(beta)', 'anything', false],
  ])('%s in "%s": %s', (name, query, isCalled) => {
    expect(calledMatcher(query)(formsOf(name))).toBe(isCalled);
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
    ['who is overloaded in monday.com, and why', 'monday.com'],
    ['what does incident.io say?', 'incident.io (community)'],
    ['look it up on you.com.', 'You.com'],
    ['put it in my google sheet', 'Google Sheets (Google)'],
  ])('finds in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(formsOf(name))).toBe(true);
  });

  it.each([
    ['a box for the linear model', 'Box'],
    ['a box for the linear model', 'Linear'],
    ['railway timetable to Bern', 'Railway'],
    ['the email sender is unknown', 'Email Sender'],
    ['two notes', 'Notes'],
    ['a zap', 'Zaps'],
    ['two boxes', 'Boxes'],
    ['slacking off', 'Slack'],
    ['my calendar on google', 'Google Calendar'],
    ['what is the weather', 'the'],
    ['brightpantry.com, is it free?', 'You.com'],
    ['to be or not to be', 'X'],
    ['anything', ''],
  ])('does not find in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(formsOf(name))).toBe(false);
  });
});

describe('placedMatcher', () => {
  it.each([
    ['es', 'apunta en notion la lista', 'Notion', true],
    ['fr', 'mets ça dans Trello', 'Trello', true],
    ['de', 'auf google calendar eintragen', 'Google Calendar (Google)', true],
    ['ru', 'добавь это в notion', 'Notion', true],
    ['es', 'notion: apunta la lista', 'Notion', false],
    ['es', 'vino a mi gusto', 'Gusto', false],
    ['es', 'el pago no era correcto', 'Era', false],
    ['sv', 'soppa med en melon', 'Melon', false],
    ['es', 'en la caja', 'Notion', false],
    // A word of the language.
    ['nl', 'zoek in deel twee', 'Deel', false],
  ])('of "%s: %s" and %s says %s', (code, query, name, expected) => {
    const language = { code, hasWord: (word: string) => word === 'deel' };
    expect(placedMatcher(query, language)(formsOf(name))).toBe(expected);
  });

  it('says nothing of English', () => {
    expect(placedMatcher('put it in notion', undefined)(formsOf('Notion'))).toBe(false);
  });
});

describe('Integrations', () => {
  const names = [
    'Mailchimp',
    'Google Forms',
    'Trådfri',
    'Wave',
    'Notion',
    'Toggl',
    'Aha!',
    'Smart Life',
    '京东',
    'C++',
  ];
  const heads = [
    { id: 'hub', integrations: names },
    { id: 'other-hub', integrations: ['mailchimp', 'freee', 'wave', 'Tra\u030Adfri Lights'] },
    { id: 'plain' },
  ];
  const start = (active: readonly object[] = heads) =>
    new Integrations({ active: () => active.values() as never });
  const among = (others: readonly { id: string; name: string }[] = []) => ({
    others: () => others,
    works: () => true,
  });
  const idsFor = (query: string, others: readonly string[] = ['Hub', 'Mailer']) => [
    ...start().find(query, 1, among(others.map(name => ({ id: name, name })))).serverIds,
  ];

  it.each([
    ['add Ann to our mailchimp list', ['hub', 'other-hub']],
    ['who answered my google forms?', ['hub']],
    ['TRÅDFRI lamp off', ['hub']],
    ['trådfri lights off', ['hub', 'other-hub']],
    ['freeeで今月の請求書', ['other-hub']],
    ['the invoice in Wave', ['hub', 'other-hub']],
    ['wave', ['hub', 'other-hub']],
    ['start a timer in toggl', ['hub']],
    ['our Aha! ideas', ['hub']],
    ['heater off in smart life', ['hub']],
  ])('finds who works with what is named: %s', (query, ids) => {
    expect(idsFor(query)).toEqual(ids);
  });

  it.each([
    'a wave from the beach',
    'google the forms',
    'mailchimps',
    '北京东路的天气',
    'how much vitamin c',
    'trådfrix',
    'nothing named',
    '',
  ])('finds nobody for "%s"', query => {
    expect(idsFor(query)).toEqual([]);
  });

  it('says whether the name is all there is', () => {
    expect(start().find('Google forms?', 1, among()).isAlone).toBe(true);
    expect(start().find('my Google forms', 1, among()).isAlone).toBe(false);
    expect(start().find('', 1, among()).isAlone).toBe(false);
  });

  it('leaves a product to a server that is named after it', () => {
    for (const own of ['Notion (official)', 'Notion MCP server', 'My Notion'])
      expect(idsFor('a page in notion', [own])).toEqual([]);
    for (const none of [
      'Notion API Docs',
      'Notional',
      'Tasks for Notion, Asana and Jira',
      'Pages (for Notion)',
    ])
      expect(idsFor('a page in notion', [none])).toEqual(['hub']);
    expect([
      ...start().find('a page in notion', 1, among([{ id: 'hub', name: 'Notion Hub' }])).serverIds,
    ]).toEqual(['hub']);
  });

  it('finds only servers that work, and a hundred of them', () => {
    const many = Array.from({ length: 300 }, (_, at) => ({ id: `hub-${at}`, integrations: ['Quixo'] }));
    const find = (works: (id: string) => boolean) =>
      start(many).find('quixo', 1, { others: () => [], works });
    expect(find(() => true).serverIds.size).toBe(100);
    expect([...find(id => id === 'hub-299').serverIds]).toEqual(['hub-299']);
    expect(find(() => false)).toEqual({ serverIds: new Set(), isAlone: false });
  });

  it('reads the entries again when the index has changed, and 50,000 names of them', () => {
    const active: object[] = [];
    const integrations = start(active);
    const count = (query: string, epoch: number) => integrations.find(query, epoch, among()).serverIds.size;
    expect(count('mailchimp', 1)).toBe(0);
    active.push(...heads);
    expect(count('mailchimp', 1)).toBe(0);
    expect(count('mailchimp', 2)).toBe(2);
    active.unshift({ id: 'many', integrations: Array.from({ length: 49_999 }, (_, at) => `Product ${at}`) });
    expect([count('product 49998', 3), count('mailchimp', 3), count('toggl', 3)]).toEqual([1, 1, 0]);
  });
});
