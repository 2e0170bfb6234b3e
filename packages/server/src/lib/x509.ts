/**
 * The library for certificates. It takes long to load, so it is imported where one is made; a
 * package of CommonJS that the bundle loads late has no names, but a module of ours has.
 */
import 'reflect-metadata';
import * as x509 from '@peculiar/x509';
import { webcrypto } from 'node:crypto';

x509.cryptoProvider.set(webcrypto);
export { x509 };
