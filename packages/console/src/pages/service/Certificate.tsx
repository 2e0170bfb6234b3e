/** The newest restore certificate of a service: what its last verification has measured, signed. */
import { canonicalJson } from '@howdah/contract/canonical';
import { certificatePage } from '@howdah/contract/certificate-page';
import { readCertificate, type Service } from '../../api.ts';
import { ActionButton, Ago, Card, Facts, Load } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useCertificates } from '../../live.ts';
import { saveFile } from '../../save-file.ts';
import { useMe } from '../../session.ts';
import classes from './service.module.css';

export function Certificate({ service }: { service: Service }) {
  return (
    <Load query={useCertificates()}>
      {([newest]) => (
        <Card title="Restore certificate">
          {newest === undefined ? (
            <p className={classes.hint}>
              Each verification that succeeds issues one: a signed document of what was restored,
              and how long it took.
            </p>
          ) : (
            <div className={classes.stack} style={{ gap: 14 }}>
              <Facts
                rows={[
                  ['Issued', <Ago key="issued" iso={newest.issued_at} />],
                  ['Backup', newest.backup.label],
                  ['Where', newest.backup.repository ?? newest.backup.place],
                ]}
              />
              <Downloads service={service} id={newest.certificate_id} />
            </div>
          )}
        </Card>
      )}
    </Load>
  );
}

function Downloads({ service, id }: { service: Service; id: string }) {
  const { project } = useMe();
  const read = () => readCertificate(project.id, service.service_id, id);
  const name = `certificate-${service.service_id}-${id}`;
  const json = useCall(async () =>
    saveFile(`${name}.json`, canonicalJson(await read()), 'application/json'),
  );
  const page = useCall(async () =>
    saveFile(`${name}.pdf`, certificatePage(canonicalJson(await read())), 'application/pdf'),
  );
  return (
    <div className={classes.row}>
      {[
        { label: 'Download PDF', call: page },
        { label: 'Download JSON', call: json },
      ].map(({ label, call }) => (
        <ActionButton
          key={label}
          variant="default"
          why={null}
          loading={call.pending}
          onClick={() => call.run()}
        >
          {label}
        </ActionButton>
      ))}
    </div>
  );
}
