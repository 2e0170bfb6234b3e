import { expect, test } from 'vitest';
import { createPasswords } from './passwords.ts';

test('calls at the same time set one password; the next one sets another', async () => {
  const passwords = createPasswords();
  const set: string[] = [];
  const renew = async () => passwords.renew('a', async (password) => void set.push(password));
  const both = await Promise.all([renew(), renew()]);
  expect(set).toHaveLength(1);
  expect(both).toEqual([set[0], set[0]]);
  expect(passwords.find('a')).toBe(set[0]);
  expect(await renew()).toBe(set[1]);
  expect(passwords.find('a')).toBe(set[1]);
});

test('a password that could not be set is not kept', async () => {
  const passwords = createPasswords();
  const refuse = async () => Promise.reject(new Error('refused'));
  await expect(passwords.renew('a', refuse)).rejects.toThrow('refused');
  expect(passwords.find('a')).toBeUndefined();
  await passwords.renew('a', async () => undefined);
  expect(passwords.find('a')).toBeDefined();
});

test('the passwords of the oldest forks are forgotten', () => {
  const passwords = createPasswords();
  for (let fork = 0; fork <= 500; fork += 1) passwords.keep(`fork${fork}`, 'secret');
  expect(passwords.find('fork0')).toBeUndefined();
  expect(passwords.find('fork1')).toBe('secret');
});
