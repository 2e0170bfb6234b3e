/** Where a server has its files: what runs servers says it. */
export type ServerFiles = {
  data: string;
  /** The server's configuration, outside the data. */
  config: string;
  /** The directory of its Unix socket. */
  socket: string;
  logs: string;
  /** WAL files that PostgreSQL has archived. */
  archive: string;
};

export type DataPlace = Readonly<Pick<ServerFiles, 'data'>>;
export type SocketPlace = Readonly<Pick<ServerFiles, 'socket'>>;
