import { NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Network as NetworkIcon } from 'lucide-react';
import { useState } from 'react';
import { type Service, serviceCalls } from '../../api.ts';
import { vpcsQuery, allowListsQuery, type AllowList } from '../../api-project.ts';
import { ButtonLink, ActionButton, Card, Code, Empty, Load } from '../../components/ui.tsx';
import { Form } from '../../components/Form.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useFindRegion, useThisService, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

export function Network() {
  const service = useThisService();
  return (
    <div className={classes.stack}>
      {service.vpc_endpoint === undefined ? (
        <Outside service={service} />
      ) : (
        <Inside service={service} vpc={service.vpc_endpoint.vpc_id} />
      )}
      <AllowListCard service={service} />
    </div>
  );
}

function Inside({ service, vpc }: { service: Service; vpc: string }) {
  const me = useMe();
  const detach = useCall(serviceCalls(me.project.id, service).detachFromVPC);
  const known = useQuery(vpcsQuery(me.project.id)).data?.find(({ id }) => id === vpc);
  const endpoint = service.vpc_endpoint;
  return (
    <Card
      title={`In the VPC ${known === undefined ? vpc : `${known.name} (${known.cidr})`}`}
      hint="only clients of the VPC and its active peers may connect"
    >
      <div className={classes.stack}>
        {endpoint !== undefined && (
          <Code value={`${endpoint.host}:${endpoint.port}`} label="endpoint in the VPC" />
        )}
        <p className={classes.hint}>
          The public endpoint {service.endpoint.host}:{service.endpoint.port} accepts no connections
          until the service is detached.
        </p>
        <div>
          <ActionButton
            variant="default"
            why={whyNot('detachFromVPC', service, me)}
            loading={detach.pending}
            onClick={() => detach.run()}
          >
            Detach from the VPC
          </ActionButton>
        </div>
      </div>
    </Card>
  );
}

function Outside({ service }: { service: Service }) {
  const me = useMe();
  const vpcs = useQuery(vpcsQuery(me.project.id));
  const findRegion = useFindRegion();
  const [chosen, setChosen] = useState('');
  const impossible = useWhyImpossible(service);
  const attach = useCall(serviceCalls(me.project.id, service).attachToVPC, { quiet: true });
  return (
    <Load query={vpcs}>
      {(found) => {
        const here = found.filter(
          (vpc) => findRegion(vpc.region_code)?.code === findRegion(service.region_code)?.code,
        );
        const vpc = chosen === '' ? (here[0]?.id ?? '') : chosen;
        return (
          <Card
            title={
              service.allow_list_id === undefined
                ? 'All networks may connect'
                : 'The networks of the allow list may connect'
            }
            hint="in a VPC, only its clients and those of its active peers may connect"
          >
            {here.length === 0 ? (
              <Empty
                icon={NetworkIcon}
                title="No VPC in this region"
                action={
                  <ButtonLink to="/project/vpcs" mt="xs">
                    To the VPCs
                  </ButtonLink>
                }
              >
                Create a VPC first, then attach the service to it.
              </Empty>
            ) : (
              <Form
                call={attach}
                why={whyNot('attachToVPC', service, me) ?? impossible('attachToVPC')}
                onSubmit={() => attach.run(vpc)}
                submit="Attach"
                inline
              >
                <NativeSelect
                  label="VPC"
                  value={vpc}
                  onChange={(event) => setChosen(event.currentTarget.value)}
                  data={here.map(({ id, name, cidr }) => ({
                    value: id,
                    label: `${name} (${cidr})`,
                  }))}
                />
              </Form>
            )}
          </Card>
        );
      }}
    </Load>
  );
}

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
