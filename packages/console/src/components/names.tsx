/** Names in place of ids, where a name is known. The id is the title. */
import { Link } from '@tanstack/react-router';
import { useKeyNames, useServiceNames } from '../live.ts';
import ui from './ui.module.css';

/** A link to a service. */
export function ServiceName({ id }: { id: string }) {
  const name = useServiceNames().get(id);
  return (
    <Link to="/services/$id" params={{ id }} className={ui.link} title={id}>
      {name ?? <span className="mono">{id}</span>}
    </Link>
  );
}

/** The key that made a call. */
export function KeyName({ publicKey }: { publicKey: string }) {
  const name = useKeyNames().get(publicKey);
  return name === undefined ? (
    <span className="mono">{publicKey}</span>
  ) : (
    <span title={publicKey}>{name}</span>
  );
}
