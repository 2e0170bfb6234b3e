/** Restores the data of a service from its backups, in its place. */
import { ALLOWED } from '@howdah/contract/actions';
import { notifications } from '@mantine/notifications';
import { serviceCalls, type Service } from '../../api.ts';
import { ConfirmName } from '../../components/ConfirmName.tsx';
import { Card } from '../../components/ui.tsx';
import { useIsOnKubernetes } from '../../live.ts';
import { useMe } from '../../session.ts';
import { live, whyNot } from '../../status.ts';
import classes from './service.module.css';

/** Where the status of the service allows it. */
export function Recover({ service }: { service: Service }) {
  const me = useMe();
  const { name, status } = service;
  const isOnKubernetes = useIsOnKubernetes(service);
  if (ALLOWED[live(status)].recover !== 'accept') return null;
  return (
    <Card title="Lost or damaged data">
      <div className={classes.stack} style={{ gap: 14 }}>
        <p className={classes.hint}>
          {isOnKubernetes
            ? 'A service whose Cluster somebody has deleted comes back from the object store of ' +
              'its region, with all that is archived there. '
            : 'The newest backup comes back with the WAL after it, from its machine or from a ' +
              'repository. '}
          Id, endpoint and password stay.
        </p>
        <ConfirmName
          label="Recover…"
          title={`Recover ${name}`}
          submit="Recover the service"
          name={name}
          why={whyNot('recover', service, me)}
          call={() => serviceCalls(me.project.id, service).recover(name)}
          onDone={() =>
            notifications.show({ message: `${name} is being recovered`, color: 'teal' })
          }
        >
          {isOnKubernetes
            ? 'What is not archived is lost. '
            : 'Its present data is set aside for the time in which a deleted service can be ' +
              'restored. What neither the backups nor its WAL have is lost.'}
        </ConfirmName>
      </div>
    </Card>
  );
}
