/** Loaded before a peer that has no option for its address: what listens on all of them listens on 127.0.0.1. */
import { Server } from 'node:net';

const listen = Server.prototype.listen as (this: Server, ...args: readonly unknown[]) => Server;
Server.prototype.listen = function (this: Server, ...args: readonly unknown[]): Server {
  const [port, ...others] = args;
  return typeof port === 'number'
    ? listen.call(this, port, '127.0.0.1', ...others.filter(argument => typeof argument !== 'string'))
    : listen.call(this, ...args);
};
