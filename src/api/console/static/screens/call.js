import { useState } from 'preact/hooks';
import { Dialog, Field, Form, jsonOf } from '../dialog.js';
import { ask, html } from '../lib.js';
import { Section, Tag } from '../parts.js';
import { duration } from '../words.js';

/** Calls a tool with arguments from a form, or from JSON, and shows the result. @param {{ server: any, tool: any, onClose: () => void, onDone: () => void }} props */
export function CallDialog({ server, tool, onClose, onDone }) {
  const fields = fieldsOf(tool.input_schema);
  const [isJson, setJson] = useState(fields === undefined);
  const [result, setResult] = useState(
    /** @type {{ answer: any, tookMs: number } | undefined} */ (undefined),
  );
  /** @param {Record<string, string>} given */
  const call = async given => {
    setResult(undefined);
    const args = isJson ? jsonOf('The arguments', given['json'] || '{}') : argumentsOf(fields ?? [], given);
    const startedAt = performance.now();
    const body = { server_id: server.id, name: tool.name, arguments: args };
    // The call may have shown how the server lets callers in, also by a refusal.
    const answer = await ask('call', { method: 'POST', body }).finally(onDone);
    setResult({ answer, tookMs: performance.now() - startedAt });
  };
  return html`<${Dialog} title=${`Call ${tool.name}`} isWide onClose=${onClose}>
    <p class="quiet">On ${server.name}, as your tenant. ${tool.description}</p>
    <${Form} verb="Call" onClose=${onClose} onSend=${call}>
      ${isJson ? html`<${AsJson} schema=${tool.input_schema} />` : html`<${AsForm} fields=${fields} />`}
      ${
        fields !== undefined &&
        fields.length > 0 &&
        html`<p><button type="button" class="small" onClick=${() => setJson(!isJson)}>${isJson ? 'Use the form' : 'Write JSON'}</button></p>`
      }
    <//>
    ${result && html`<${Result} ...${result} />`}
  <//>`;
}

/** @typedef {{ name: string, kind: 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'json', isRequired: boolean, description: string | undefined, choices: readonly unknown[], preset: unknown }} ArgumentField */

/** Returns a field for each argument; undefined if the schema is not one of plain properties. @param {any} schema @returns {readonly ArgumentField[] | undefined} */
function fieldsOf(schema) {
  const { properties = {}, required = [], oneOf, anyOf, allOf } = schema ?? {};
  if (oneOf || anyOf || allOf || typeof properties !== 'object') return undefined;
  return Object.entries(properties).map(([name, /** @type {any} */ one]) => ({
    name,
    kind: kindOf(one),
    isRequired: Array.isArray(required) && required.includes(name),
    description: typeof one?.description === 'string' ? one.description : undefined,
    choices: Array.isArray(one?.enum) ? one.enum : [],
    preset: one?.default,
  }));
}

/** @param {any} schema @returns {ArgumentField['kind']} */
function kindOf(schema) {
  if (Array.isArray(schema?.enum)) return 'choice';
  if (schema?.type === 'string') return 'text';
  if (schema?.type === 'number' || schema?.type === 'integer' || schema?.type === 'boolean')
    return schema.type;
  return 'json';
}

/** @param {{ fields: readonly ArgumentField[] }} props */
const AsForm = ({ fields }) =>
  fields.length === 0
    ? html`<p class="quiet">It takes no arguments.</p>`
    : html`<div class="fields">
        ${fields.map(
          field =>
            html`<${Field}
              key=${field.name}
              name=${field.name}
              label=${field.name}
              isOptional=${!field.isRequired}
              help=${field.description}
              control=${(/** @type {any} */ joined) => html`<${Control} field=${field} joined=${joined} />`}
            />`,
        )}
      </div>`;

/** @param {{ field: ArgumentField, joined: Record<string, string> }} props */
function Control({ field: { kind, choices, preset, isRequired }, joined }) {
  if (kind === 'choice' || kind === 'boolean') {
    const values = kind === 'boolean' ? [true, false] : choices;
    return html`<select required=${isRequired} ...${joined}>
      <option value=""></option>
      ${values.map(value => html`<option value=${JSON.stringify(value)} selected=${value === preset}>${String(value)}</option>`)}
    </select>`;
  }
  if (kind === 'json')
    return html`<textarea
      class="code"
      rows="3"
      required=${isRequired}
      placeholder="JSON"
      spellcheck=${false}
      defaultValue=${preset === undefined ? '' : JSON.stringify(preset)}
      ...${joined}
    ></textarea>`;
  const isNumber = kind !== 'text';
  return html`<input
    autocomplete="off"
    required=${isRequired}
    type=${isNumber ? 'number' : 'text'}
    step=${isNumber ? (kind === 'integer' ? '1' : 'any') : undefined}
    defaultValue=${preset === undefined ? '' : textOf(preset)}
    ...${joined}
  />`;
}

/** @param {unknown} preset */
const textOf = preset => (typeof preset === 'string' ? preset : JSON.stringify(preset));

/** Returns the arguments of a form; empty optional fields are omitted. @param {readonly ArgumentField[]} fields @param {Record<string, string>} given */
const argumentsOf = (fields, given) =>
  Object.fromEntries(
    fields.flatMap(({ name, kind, isRequired }) => {
      const text = given[name] ?? '';
      if (text === '' && !(isRequired && kind === 'text')) return [];
      return [
        [
          name,
          kind === 'text'
            ? text
            : kind === 'number' || kind === 'integer'
              ? Number(text)
              : jsonOf(name, text),
        ],
      ];
    }),
  );

/** @param {{ schema: unknown }} props */
const AsJson = ({ schema }) =>
  html`<${Field}
      name="json"
      label="Arguments as JSON"
      control=${(/** @type {any} */ joined) =>
        html`<textarea class="code" rows="8" spellcheck=${false} defaultValue="{}" ...${joined}></textarea>`}
    />
    <details>
      <summary>Schema</summary>
      <pre tabindex="0">${JSON.stringify(schema, null, 2)}</pre>
    </details>`;

/** @param {{ answer: any, tookMs: number }} props */
function Result({ answer, tookMs }) {
  const { content = [], isError, structuredContent } = answer;
  return html`<${Section}
    title="Result"
    actions=${html`<span class="tags" role="status">
      ${isError ? html`<${Tag} tone="bad">The tool reports an error<//>` : html`<${Tag} tone="good">Done<//>`}
      <span class="quiet">${duration(tookMs)}</span>
    </span>`}
  >
    ${content.map((/** @type {any} */ block, /** @type {number} */ at) => html`<${Block} key=${at} block=${block} />`)}
    ${structuredContent !== undefined && html`<pre tabindex="0">${JSON.stringify(structuredContent, null, 2)}</pre>`}
  <//>`;
}

/** @param {{ block: any }} props */
function Block({ block }) {
  if (block.type === 'text') return html`<pre tabindex="0">${block.text}</pre>`;
  if (block.type === 'image' && /^image\/(png|jpeg|gif|webp)$/.test(block.mimeType))
    return html`<img src=${`data:${block.mimeType};base64,${block.data}`} alt="The image that the tool returned" />`;
  return html`<pre tabindex="0">${JSON.stringify(block, null, 2)}</pre>`;
}
