/** Markup that may go into a page as it is: made by `html`, or a constant of ours. Never from a value. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a template may hold: text is escaped, nothing at all is left out. */
export type Content = string | number | Html | readonly Content[] | undefined | false;

/**
 * A template whose every value is escaped for text and for quoted attributes, unless it is markup of another such template.
 * @example html`<p title="${title}">${text}</p>`
 */
export function html(strings: TemplateStringsArray, ...values: readonly Content[]): Html {
  return new Html(strings.reduce((text, part, at) => `${text}${render(values[at - 1])}${part}`));
}

function render(content: Content): string {
  if (content instanceof Html) return content.text;
  if (content === undefined || content === false) return '';
  if (typeof content === 'object') return content.map(render).join('');
  return String(content).replaceAll(/[&<>"'`]/g, character => `&#${character.charCodeAt(0)};`);
}

/**
 * A name that others chose (a user id, an account, an app), on a page that people decide by. Isolated, so that its writing
 * direction ends where it ends; and what would change the look of the rest of it or cannot be seen becomes U+FFFD.
 */
export const named = (name: string): Html => html`<bdi>${visible(name)}</bdi>`;

/** The same where there is no markup: titles and labels. */
export const visible = (name: string): string => name.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\u{fffd}');
