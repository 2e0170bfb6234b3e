import { NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Network as NetworkIcon } from 'lucide-react';
import { useState } from 'react';
import type { Service } from '../../api.ts';
import { serviceCalls } from '../../api.ts';
import { vpcsQuery } from '../../api-project.ts';
import { ButtonLink } from '../../components/links.tsx';
import { Form } from '../../components/Form.tsx';
import { Load } from '../../components/Load.tsx';
import { ActionButton, Card, Code, Empty } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useFindRegion, useThisService, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import { AllowListCard } from './AllowList.tsx';
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
