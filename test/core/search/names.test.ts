import { describe, expect, it } from 'vitest';
import { mentionMatcher, namedMatcher, nameMatcher, spellingsOf } from '../../../src/core/search/names.ts';

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
  ])('finds in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(name)).toBe(true);
  });

  it.each([
    ['a box for the linear model', 'Box'],
    ['a box for the linear model', 'Linear'],
    ['railway timetable to Bern', 'Railway'],
    ['slacking off', 'Slack'],
    ['my calendar on google', 'Google Calendar'],
    ['to be or not to be', 'X'],
    ['anything', ''],
  ])('does not find in "%s" the name %s', (query, name) => {
    expect(namedMatcher(query)(name)).toBe(false);
  });
});
