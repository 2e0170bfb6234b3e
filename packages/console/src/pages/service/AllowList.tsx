import { NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Service } from '../../api.ts';
import { serviceCalls } from '../../api.ts';
import { allowListsQuery, type AllowList } from '../../api-project.ts';
import { ButtonLink } from '../../components/links.tsx';
import { Form } from '../../components/Form.tsx';
import { Load } from '../../components/Load.tsx';
import { ActionButton, Card } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

/** The allow list of a service: which there is, and how to change it. */
export function AllowListCard({ service }: { service: Service }) {
  const me = useMe();
  const lists = useQuery(allowListsQuery(me.project.id));
  const { allow_list_id: attached, vpc_endpoint: inside } = service;
  return (
    <Load query={lists}>
      {(found) => (
        <Card
          title={attached === undefined ? 'No allow list' : titleOf(found, attached)}
          hint={
            inside === undefined
              ? 'with one, only clients of its networks may connect'
              : 'it has no effect while the service is in a VPC'
          }
        >
          <div className={classes.stack}>
            {attached !== undefined && <Attached service={service} list={attached} lists={found} />}
            <Choice
              service={service}
              lists={found.filter((one) => one.allow_list_id !== attached)}
            />
          </div>
        </Card>
      )}
    </Load>
  );
}

const titleOf = (lists: readonly AllowList[], id: string): string =>
  `The allow list ${lists.find((list) => list.allow_list_id === id)?.description ?? id}`;

function Attached({
  service,
  list,
  lists,
}: {
  service: Service;
  list: string;
  lists: readonly AllowList[];
}) {
  const me = useMe();
  const detach = useCall(serviceCalls(me.project.id, service).detachFromAllowList);
  const networks = lists.find((one) => one.allow_list_id === list)?.cidr_blocks ?? [];
  return (
    <>
      <p className="mono">{networks.join(', ')}</p>
      <div>
        <ActionButton
          variant="default"
          why={whyNot('detachFromAllowList', service, me)}
          loading={detach.pending}
          onClick={() => detach.run(list)}
        >
          Detach the allow list
        </ActionButton>
      </div>
    </>
  );
}

/** @param lists those that the service does not have */
function Choice({ service, lists }: { service: Service; lists: readonly AllowList[] }) {
  const me = useMe();
  const [chosen, setChosen] = useState('');
  const attach = useCall(serviceCalls(me.project.id, service).attachToAllowList, {
    quiet: true,
  });
  const list = chosen === '' ? (lists[0]?.allow_list_id ?? '') : chosen;
  if (lists.length === 0)
    return (
      <div>
        <ButtonLink to="/project/allow-lists">To the allow lists</ButtonLink>
      </div>
    );
  return (
    <Form
      call={attach}
      why={whyNot('attachToAllowList', service, me)}
      onSubmit={() => attach.run(list)}
      submit="Attach the allow list"
      inline
    >
      <NativeSelect
        label="Allow list"
        value={list}
        onChange={(event) => setChosen(event.currentTarget.value)}
        data={lists.map(({ allow_list_id: value, description, cidr_blocks: networks }) => ({
          value,
          label: `${description} (${networks[0]}${networks.length > 1 ? ', …' : ''})`,
        }))}
      />
    </Form>
  );
}
