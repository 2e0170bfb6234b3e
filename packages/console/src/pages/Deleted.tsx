import { useNavigate } from '@tanstack/react-router';
import { Archive } from 'lucide-react';
import { serviceCalls } from '../api.ts';
import { Load } from '../components/Load.tsx';
import { Rows } from '../components/Rows.tsx';
import { ActionButton, Ago, Card, Empty, Environment, PageHead } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useDeleted } from '../live.ts';
import { useMe } from '../session.ts';
import { TYPE_NAMES, whyReadOnly } from '../status.ts';
import ui from './project.module.css';

export function Deleted() {
  const me = useMe();
  const { project } = me;
  const navigate = useNavigate();
  const restore = useCall(async (id: string) => {
    await serviceCalls(project.id, id).restore();
    await navigate({ to: '/services/$id', params: { id } });
  });
  return (
    <>
      <PageHead title="Deleted services" about="For a while they can be brought back, with their id, endpoint, data and password." />
      <Load query={useDeleted()}>
        {(deleted) => (
          <Card flush>
            {deleted.length === 0 ? (
              <Empty icon={Archive} title="Nothing was deleted lately">
                A service that you delete waits here for a day, or as long as HOWDAH_UNDELETE_HOURS says, before its data is gone for good.
              </Empty>
            ) : (
              <Rows
                rows={deleted}
                idOf={({ service_id: id }) => id}
                columns={[
                  {
                    title: 'Name',
                    show: ({ name, environment, service_id: id }) => (
                      <>
                        <strong className={ui.strong}>{name}</strong> <Environment service={{ metadata: { environment } }} />
                        <div className={`mono ${ui.muted}`}>{id}</div>
                      </>
                    ),
                  },
                  { title: 'Type', show: ({ service_type: type }) => TYPE_NAMES[type] },
                  { title: 'Deleted', show: ({ deleted: at }) => <Ago iso={at} /> },
                  {
                    title: null,
                    show: ({ service_id: id }) => (
                      <ActionButton
                        variant="default"
                        size="xs"
                        loading={restore.pending}
                        why={whyReadOnly(me)}
                        onClick={() => restore.run(id)}
                      >
                        Restore
                      </ActionButton>
                    ),
                  },
                ]}
              />
            )}
          </Card>
        )}
      </Load>
    </>
  );
}
