/** How zod itself speaks of what is wrong: its English messages, and the codes of a dump of its issues. */
export const ZODS_WORDS =
  /Invalid (input|option|string|number|key in|value in|discriminator|URL|ISO|regex|base64)|Too (big|small)|expected [^.;]*, received|Unrecognized key|invalid_(type|value|format|union|key|element)|too_(big|small)|unrecognized_keys|ZodError/;
