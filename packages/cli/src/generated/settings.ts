// Generated from packages/server/src/settings.ts by `npm run generate`.
export const SETTINGS: readonly { name: string; flag: string; help: string }[] = [
  {
    "name": "HOWDAH_HOME",
    "flag": "--home <value>",
    "help": "where the installation keeps its files (HOWDAH_HOME; default ~/.howdah; allowed: the path of a directory)"
  },
  {
    "name": "HOWDAH_HOST",
    "flag": "--host <value>",
    "help": "address that the API and the databases listen on; 0.0.0.0 for all (HOWDAH_HOST; default 127.0.0.1; allowed: an IP address of this machine, 0.0.0.0, :: or localhost)"
  },
  {
    "name": "HOWDAH_PORT",
    "flag": "--port <value>",
    "help": "port of the API (HOWDAH_PORT; default 8080; allowed: a whole number from 1 to 65535)"
  },
  {
    "name": "HOWDAH_PORT_RANGE",
    "flag": "--port-range <value>",
    "help": "ports for databases (HOWDAH_PORT_RANGE; default 20000-29999; allowed: FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535)"
  },
  {
    "name": "HOWDAH_REGIONS",
    "flag": "--regions <value>",
    "help": "further regions on this machine, such as for a second disk: each has a directory and ports for its databases (HOWDAH_REGIONS; default none; allowed: CODE=DIRECTORY:FIRST-LAST, separated by commas, or none; CODE of a-z, 0-9 and -, DIRECTORY as absolute path, 1024 ≤ FIRST ≤ LAST ≤ 65535)"
  },
  {
    "name": "HOWDAH_REGION_ALIASES",
    "flag": "--region-aliases <value>",
    "help": "further names of the first region, which its services and VPCs show as they were asked for; the codes of regions here keep their meaning (HOWDAH_REGION_ALIASES; default ap-northeast-1,ap-south-1,ap-southeast-1,ap-southeast-2,ca-central-1,eu-central-1,eu-central-2,eu-west-1,eu-west-2,sa-east-1,us-east-1,us-east-2,us-west-2,az-eastus2,az-westeurope; allowed: region codes of a-z, 0-9 and -, separated by commas, or none)"
  },
  {
    "name": "HOWDAH_PUBLIC_HOST",
    "flag": "--public-host <value>",
    "help": "host name in endpoints and certificates (HOWDAH_PUBLIC_HOST; default HOWDAH_HOST, or localhost; allowed: a host name or an IP address, without port or scheme)"
  },
  {
    "name": "HOWDAH_SPARES",
    "flag": "--spares <value>",
    "help": "running servers that are kept for the next create (HOWDAH_SPARES; default 1; allowed: a whole number from 0 to 16)"
  },
  {
    "name": "HOWDAH_CPU_BOUND",
    "flag": "--cpu-bound <value>",
    "help": "how much CPU a service may use that does not say it itself; none: idle processors beyond its size; size: no more than its size (HOWDAH_CPU_BOUND; default none; allowed: none, size)"
  },
  {
    "name": "HOWDAH_BACKUP_DAYS",
    "flag": "--backup-days <value>",
    "help": "days within which a service can be forked at a point in time (HOWDAH_BACKUP_DAYS; default 3; allowed: a number from 0.001 to 3650)"
  },
  {
    "name": "HOWDAH_SNAPSHOT_HOURS",
    "flag": "--snapshot-hours <value>",
    "help": "hours between snapshots of a service that is written to (HOWDAH_SNAPSHOT_HOURS; default 24; allowed: a number from 0.001 to 8760)"
  },
  {
    "name": "HOWDAH_VERIFY_HOURS",
    "flag": "--verify-hours <value>",
    "help": "hours between verifications of the newest backup of a running service (HOWDAH_VERIFY_HOURS; default 24; allowed: a number from 0.001 to 8760)"
  },
  {
    "name": "HOWDAH_RESTORE_HOURS",
    "flag": "--restore-hours <value>",
    "help": "hours within which a deleted service can be restored; 0: it cannot (HOWDAH_RESTORE_HOURS; default 24; allowed: a number from 0 to 87600)"
  },
  {
    "name": "HOWDAH_MAINTENANCE_WINDOW",
    "flag": "--maintenance-window <value>",
    "help": "when services are restarted, one after the other, whose PostgreSQL has a newer minor version (HOWDAH_MAINTENANCE_WINDOW; default none; allowed: a day (Sun, Mon, … or daily) and two times of the local clock, HH:MM-HH:MM)"
  },
  {
    "name": "HOWDAH_HISTORY_DAYS",
    "flag": "--history-days <value>",
    "help": "days for which ended operations and audit entries are kept (HOWDAH_HISTORY_DAYS; default 365; allowed: a number from 0.001 to 36500)"
  },
  {
    "name": "HOWDAH_HEARTBEAT_MS",
    "flag": "--heartbeat-ms <value>",
    "help": "milliseconds after which a primary that a signal has stopped is killed and replaced, if its service has replicas (HOWDAH_HEARTBEAT_MS; default 1000; allowed: a whole number from 100 to 60000)"
  },
  {
    "name": "HOWDAH_FAILOVER_COOLDOWN_SECONDS",
    "flag": "--failover-cooldown-seconds <value>",
    "help": "seconds after a failover in which a primary that dies is restarted in place (HOWDAH_FAILOVER_COOLDOWN_SECONDS; default 30; allowed: a whole number from 0 to 86400)"
  },
  {
    "name": "HOWDAH_FAILOVER_LAG_BYTES",
    "flag": "--failover-lag-bytes <value>",
    "help": "bytes of WAL that an asynchronous replica may lack and still take over by itself (HOWDAH_FAILOVER_LAG_BYTES; default 1048576; allowed: a whole number from 0 to 999999999)"
  },
  {
    "name": "HOWDAH_TLS",
    "flag": "--tls <value>",
    "help": "whether the API speaks TLS; auto: if other machines can reach HOWDAH_HOST, or with HOWDAH_TLS_CERT; off: for a proxy that does (HOWDAH_TLS; default auto; allowed: auto, on, off)"
  },
  {
    "name": "HOWDAH_TLS_CERT",
    "flag": "--tls-cert <value>",
    "help": "PEM file with the certificate of the API and its chain (HOWDAH_TLS_CERT; default one of our own CA; allowed: the path of a file)"
  },
  {
    "name": "HOWDAH_TLS_KEY",
    "flag": "--tls-key <value>",
    "help": "PEM file with the key of that certificate (HOWDAH_TLS_KEY; default one of our own CA; allowed: the path of a file)"
  },
  {
    "name": "HOWDAH_TRUSTED_PROXIES",
    "flag": "--trusted-proxies <value>",
    "help": "proxies whose X-Forwarded-For is trusted (HOWDAH_TRUSTED_PROXIES; default none; allowed: addresses and networks, separated by commas, or none)"
  },
  {
    "name": "HOWDAH_API_HOSTS",
    "flag": "--api-hosts <value>",
    "help": "further names under which requests without a key reach the API, such as those of browsers through a proxy; `*.` matches one label (HOWDAH_API_HOSTS; default none; allowed: host names and IP addresses, without port or scheme, separated by commas, or none)"
  },
  {
    "name": "HOWDAH_CONNECTIONS_PER_ADDRESS",
    "flag": "--connections-per-address <value>",
    "help": "open connections to the API from one address; no limit for trusted proxies (HOWDAH_CONNECTIONS_PER_ADDRESS; default 512; allowed: a whole number from 1 to 1000000)"
  },
  {
    "name": "HOWDAH_CHANGES_PER_DAY",
    "flag": "--changes-per-day <value>",
    "help": "accepted changes of a project within a day; further ones are answered with 429, reads never are (HOWDAH_CHANGES_PER_DAY; default 20000; allowed: a whole number from 1 to 999999999)"
  },
  {
    "name": "HOWDAH_FAILED_KEYS_PER_MINUTE",
    "flag": "--failed-keys-per-minute <value>",
    "help": "wrong keys from one address within a minute; further ones are answered with 429, valid keys never are (HOWDAH_FAILED_KEYS_PER_MINUTE; default 100; allowed: a whole number from 0 to 1000000)"
  },
  {
    "name": "HOWDAH_WEBHOOK_NETWORKS",
    "flag": "--webhook-networks <value>",
    "help": "private networks that webhooks, exporters and alerts may send to (HOWDAH_WEBHOOK_NETWORKS; default none; allowed: addresses and networks, separated by commas, or none)"
  },
  {
    "name": "HOWDAH_CREDENTIAL_PROGRAMS",
    "flag": "--credential-programs <value>",
    "help": "programs that kubeconfigs of regions may run on this machine for credentials of their clusters, with any arguments (HOWDAH_CREDENTIAL_PROGRAMS; default none; allowed: absolute paths of programs, separated by commas, or none)"
  },
  {
    "name": "HOWDAH_READ_LAG_BYTES",
    "flag": "--read-lag-bytes <value>",
    "help": "bytes of WAL that a replica-set node may not have replayed and still get connections (HOWDAH_READ_LAG_BYTES; default 134217728; allowed: a whole number from 0 to 999999999)"
  },
  {
    "name": "HOWDAH_READ_LAG_SECONDS",
    "flag": "--read-lag-seconds <value>",
    "help": "seconds that the data of a replica-set node may be old while it gets connections (HOWDAH_READ_LAG_SECONDS; default 60; allowed: a number from 0 to 86400)"
  },
  {
    "name": "HOWDAH_UID_RANGE",
    "flag": "--uid-range <value>",
    "help": "operating system users for services, if Howdah runs as root; they need no entries in /etc/passwd (HOWDAH_UID_RANGE; default 70000-89999; allowed: FIRST-LAST with 1000 ≤ FIRST ≤ LAST ≤ 4294967293, without 65534 and 65535)"
  },
  {
    "name": "HOWDAH_SINGLE_PROJECT",
    "flag": "--single-project [yes]",
    "help": "whether services of a second project are refused where services cannot have users of their own (HOWDAH_SINGLE_PROJECT; default no; allowed: yes, no)"
  },
  {
    "name": "HOWDAH_SIMULATED_REGION",
    "flag": "--simulated-region [yes]",
    "help": "whether there is one more region, named simulated, whose services run no PostgreSQL, for tests of programs that use the API (HOWDAH_SIMULATED_REGION; default no; allowed: yes, no)"
  },
  {
    "name": "HOWDAH_LOCAL_REGION",
    "flag": "--local-region [yes]",
    "help": "whether this machine runs services; no: in a Kubernetes cluster, with other control planes (HOWDAH_LOCAL_REGION; default yes; allowed: yes, no)"
  },
  {
    "name": "HOWDAH_DATABASE_URL",
    "flag": "--database-url <value>",
    "help": "the metadata database, where the control plane keeps its own data (HOWDAH_DATABASE_URL; default the one that HOWDAH_HOME records; at first a PostgreSQL of our own; allowed: a URL of the form postgres://user:password@host:port/database)"
  }
];
