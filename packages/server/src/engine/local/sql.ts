/** The sessions that the control plane opens for its users. */
import { EngineUnavailable, type Sql } from '../engine.ts';
import { memberKey } from './host/layout.ts';
import type { Local } from './local.ts';
import { NoAnswer } from './postgres/monitor.ts';
import { alterPassword, setPassword } from './postgres/password.ts';
import { firstNode, primaryPaths } from './topology/instances.ts';

export function createSql({ machine, reader }: Local): Sql {
  const { layout } = machine;
  return {
    setPassword: async (id, verifier) => {
      try {
        await setPassword(primaryPaths(machine, id), alterPassword(verifier));
      } catch (error) {
        if (error instanceof NoAnswer) throw new EngineUnavailable(error.message, { cause: error });
        throw error;
      }
    },
    query: async (id, parent, statement) => {
      const primary = parent ?? id;
      const home = {
        key: memberKey(primary, layout.primaryOf(primary)),
        paths: primaryPaths(machine, primary),
      };
      const node = parent === null ? null : await firstNode(machine, id);
      const place =
        node === null ? home : { key: memberKey(id, node), paths: layout.member(id, node) };
      return reader.read(place, home, statement);
    },
  };
}
