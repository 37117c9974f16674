import { describe, expect, it } from 'vitest';
import { Glossary } from '../../../src/core/search/glossary.ts';
import { textsOf } from '../../../src/core/search/documents.ts';

/** Builds a glossary of the given lines: English word, then the forms in each language of the head. */
const glossaryOf = (head: string, ...lines: string[]) =>
  new Glossary(
    ['en', head, ...lines].join('\n').replace('en\n', 'en\t'),
    known => word => known.includes(word),
  );

describe('Glossary.translate', () => {
  it('translates word by word, leaves words out, and keeps names as they are', () => {
    const glossary = glossaryOf('de', '\tdas in wie ist', 'weather\twetter', 'tomorrow\tmorgen');
    expect(glossary.translate('Wie ist das Wetter morgen in Köln?')?.english).toBe('weather tomorrow koln');
  });

  it('leaves English alone, and texts that are as much English as something else', () => {
    const glossary = glossaryOf('de', '\tdie in', 'mail\tmail e-mail', 'die\twürfel');
    expect(glossary.translate('Mail')).toBeUndefined();
    expect(glossary.translate('send my mail')).toBeUndefined();
    expect(glossary.translate('')).toBeUndefined();
    expect(glossary.translate('Zürich')).toBeUndefined();
  });

  it('takes a phrase or a name for a word, and a name for no sign of English', () => {
    const glossary = glossaryOf('de', '\tin', 'living room\twohnzimmer', 'Beijing\tpeking', 'mail\tpost');
    expect(glossary.translate('Post in Peking')?.english).toBe('mail Beijing');
    expect(glossary.translate('Wohnzimmer in Beijing')?.english).toBe('living room beijing');
    expect(glossary.isEnglish('mail')).toBe(true);
    expect(glossary.isEnglish('beijing')).toBe(false);
    expect(glossary.words).toEqual(['beijing', 'mail']);
  });

  it('takes a name for a sign of no language', () => {
    const glossary = glossaryOf('nl', '\tvan', 'folder\tmap', 'map\tkaart', 'Zurich\tzurich zürich');
    expect(glossary.translate('map Zurich')).toBeUndefined();
    expect(glossary.translate('kaart van Zürich')?.english).toBe('map Zurich');
  });

  it('takes the language with the most words it knows', () => {
    const glossary = glossaryOf(
      'es\tit',
      '\tel la\til la di',
      'invoice\tfactura\tfattura',
      'law\tley\tlegge',
    );
    expect(glossary.translate('la fattura di Rossi')?.english).toBe('invoice rossi');
    expect(glossary.translate('la factura')?.english).toBe('invoice');
  });

  it('finds inflected words by their start, within limits', () => {
    const glossary = glossaryOf('pl', '\tmoje', 'invoice\tfaktura');
    expect(glossary.translate('moje fakturami')?.english).toBe('invoice');
    expect(glossary.translate('moje fakturowanie')?.english).toBe('fakturowanie');
    expect(glossary.translate('moje faks')?.english).toBe('faks');
  });

  it('does not take a name for an inflected word', () => {
    const glossary = glossaryOf('es', '\tun a', 'flight\tvuelo', 'mother\tmadre', 'wood\tmadera');
    expect(glossary.translate('un vuelo a Madrid')?.english).toBe('flight madrid');
    expect(glossary.translate('un vuelo a madres')?.english).toBe('flight mother');
  });

  it('splits compounds with and without a joint', () => {
    const glossary = glossaryOf(
      'de',
      '\tder den',
      'weather\twetter',
      'report\tbericht',
      'work\tarbeit',
      'place\tplatz',
    );
    expect(glossary.translate('der Wetterbericht')?.english).toBe('weather report');
    expect(glossary.translate('den Arbeitsplatz')?.english).toBe('work place');
  });

  it('takes the longest known form at each place of a script without spaces', () => {
    const glossary = glossaryOf(
      'ja\tzh',
      'mail\tメール\t邮件',
      'send\t送る 送って\t发',
      'new\t新\t新',
      'news\t新聞\t新闻',
    );
    expect(glossary.translate('新聞をメールで送って')?.english).toBe('news mail send');
    expect(glossary.translate('用Gmail发邮件')?.english).toBe('gmail send mail');
  });

  it('knows forms of several words, and elided articles', () => {
    const glossary = glossaryOf('fr', '\tl d le', 'spreadsheet\tfeuille_de_calcul', 'hotel\thôtel');
    expect(glossary.translate("l'hôtel")?.english).toBe('hotel');
    expect(glossary.translate('le feuille de calcul')?.english).toBe('spreadsheet');
  });

  it('reads Arabic with its prefixes and its ways to write a letter', () => {
    const glossary = glossaryOf('ar', '\tإلى', 'email\tبريد', 'team\tفريق', 'invoice\tفاتورة');
    expect(glossary.translate('والبريد')?.english).toBe('email');
    expect(glossary.translate('الى للفريق')?.english).toBe('team');
    expect(glossary.translate('فاتوره')?.english).toBe('invoice');
  });

  it('gives at most three English words for a form', () => {
    const glossary = glossaryOf(
      'de',
      ...['delete', 'remove', 'erase', 'drop'].map(word => `${word}\tlöschen`),
    );
    expect(glossary.translate('löschen')?.english).toBe('delete remove erase');
  });

  it.each([
    'a'.repeat(1000),
    '新'.repeat(1000),
    'ab '.repeat(333),
    "'".repeat(1000),
    '\uD800',
    '١٢٣',
    'ي'.repeat(1000),
  ])('takes any text: %.12s', text => {
    expect(() => textsOf(text)).not.toThrow();
  });
});

describe('textsOf', () => {
  it.each([
    ['de', 'Schick Anna eine E-Mail mit der Rechnung', ['send', 'mail', 'invoic']],
    ['es', '¿Qué tiempo hará mañana en Sevilla?', ['weather', 'tomorrow']],
    ['fr', 'trouve un vol pas cher pour Lisbonne en mai', ['flight', 'lisbonn']],
    ['pt', 'cria uma tarefa para revisar o contrato', ['creat', 'task', 'contract']],
    ['it', 'cerca un ristorante vicino alla stazione', ['restaur', 'station']],
    ['nl', 'zet een afspraak in mijn agenda voor vrijdag', ['fridai', 'calendar']],
    ['sv', 'skicka fakturan till kunden', ['send', 'invoic']],
    ['pl', 'pokaż ostatnie faktury klienta', ['show', 'invoic']],
    ['ru', 'отправь письмо клиенту', ['send', 'custom']],
    ['uk', 'створи завдання на завтра', ['task', 'tomorrow']],
    ['tr', 'yarın hava nasıl olacak', ['weather', 'tomorrow']],
    ['ar', 'أرسل بريدًا إلى الفريق', ['send', 'team']],
    ['hi', 'कल का मौसम कैसा रहेगा', ['weather']],
    ['id', 'kirim email ke pelanggan', ['send', 'custom']],
    ['vi', 'thời tiết ngày mai', ['weather']],
    ['ja', '明日の天気を教えて', ['weather', 'tomorrow']],
    ['zh', '明天天气怎么样', ['weather', 'tomorrow']],
    ['ko', '내일 날씨 알려줘', ['weather', 'tomorrow']],
  ])('adds the English terms of a request (%s)', (_language, query, expected) => {
    const { terms, sentences } = textsOf(query);
    expect(terms).toEqual(expect.arrayContaining(expected));
    expect(sentences).toHaveLength(1);
  });

  it('keeps the terms of the request itself, for catalogues in its language', () => {
    expect(textsOf('Rechnung schicken').terms).toEqual(
      expect.arrayContaining(['rechnung', 'invoic', 'send']),
    );
  });

  it('gives an English request as it is', () => {
    expect(textsOf('Send an email to Anna. Then book a flight to Rome.')).toMatchObject({
      terms: ['send', 'email', 'anna', 'book', 'flight', 'rome'],
      sentences: ['Send an email to Anna', 'Then book a flight to Rome'],
    });
  });
});
