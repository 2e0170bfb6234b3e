/*
 * Sessions that cannot write, and cannot change that.
 *
 * tsdb_admin.read_only_connection  is set in the startup packet (PGOPTIONS, `options=` in a URL);
 * tsdb_admin.read_only_role        is set for a role by ALTER ROLE, before its next login.
 *
 * PostgreSQL refuses writes in a transaction with transaction_read_only, which a session may switch
 * off. Here, a session that is read-only begins each transaction with it, and the check hooks of
 * both parameters refuse to switch it off: SET, set_config(), BEGIN READ WRITE, and the parameters
 * of functions all call them. RESET and DISCARD return to the value of the start, which is on.
 * Other sessions run none of this code.
 *
 * Loaded by shared_preload_libraries. See docs/decisions/0038-read-only-connections.md.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/syscache.h"

#if PG_VERSION_NUM / 10000 != HOWDAH_MAJOR
#error "the headers are of another major version than the server"
#endif

PG_MODULE_MAGIC;

/* From replication/walsender.h and access/parallel.h, which include much more. */
extern PGDLLIMPORT bool am_walsender;
extern PGDLLIMPORT bool InitializingParallelWorker;

static bool read_only_connection = false;
static bool read_only_role = false;

/* Whether the session is read-only. It never becomes false again. */
static bool is_read_only = false;

static object_access_hook_type previous_object_access = NULL;
static ProcessUtility_hook_type previous_utility = NULL;
static GucBoolCheckHook previous_check_transaction = NULL;

/*
 * Functions in C that PostgreSQL and its extensions allow in a read-only transaction although they
 * change something that outlives it. A '*' stands for any end.
 */
static const char *const writers[] = {
	/* WAL, slots and the progress of replication */
	"pg_logical_emit_message", "pg_create_logical_replication_slot",
	"pg_create_physical_replication_slot", "pg_copy_logical_replication_slot",
	"pg_copy_physical_replication_slot", "pg_drop_replication_slot",
	"pg_replication_slot_advance", "pg_logical_slot_get_changes",
	"pg_logical_slot_get_binary_changes", "pg_sync_replication_slots",
	"pg_replication_origin_create", "pg_replication_origin_drop",
	"pg_replication_origin_advance", "pg_replication_origin_session_*",
	"pg_replication_origin_xact_*",
	"pg_create_restore_point", "pg_switch_wal", "pg_backup_*", "pg_wal_replay_*", "pg_promote",
	/* statistics and maintenance */
	"pg_restore_relation_stats", "pg_restore_attribute_stats",
	"pg_restore_extended_stats", "pg_clear_relation_stats", "pg_clear_attribute_stats",
	"pg_clear_extended_stats", "pg_stat_reset*", "pg_stat_statements_reset",
	"pg_stat_monitor_reset", "pg_stat_kcache_reset",
	"brin_summarize_new_values", "brin_summarize_range", "brin_desummarize_range",
	"gin_clean_pending_list", "pg_truncate_visibility_map", "heap_force_*",
	"pg_buffercache_evict*", "pg_import_system_collations",
	/* files */
	"pg_export_snapshot", "lo_import", "lo_export", "pg_file_*", "autoprewarm_*",
	/* other processes, and the server */
	"pg_terminate_backend", "pg_cancel_backend", "pg_reload_conf", "pg_rotate_logfile*",
	"pg_log_backend_memory_contexts",
	/* sessions elsewhere, which can write */
	"dblink*",
};

static void
refuse(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("cannot execute %s in a read-only session", what),
			 errhint("Connect without tsdb_admin.read_only_connection, as a role without tsdb_admin.read_only_role.")));
}

/* The values of configuration files, databases and roles do not count; a user gets an error. */
static bool
check_stays_on(bool *newval, GucSource source)
{
	if (*newval)
		return true;
	if (source <= PGC_S_DATABASE_USER)
	{
		*newval = true;
		return true;
	}
	GUC_check_errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION);
	GUC_check_errmsg("cannot set transaction read-write mode in a read-only session");
	return false;
}

static bool
check_default(bool *newval, void **extra, GucSource source)
{
	return check_stays_on(newval, source);
}

static bool
check_transaction(bool *newval, void **extra, GucSource source)
{
	return check_stays_on(newval, source) && previous_check_transaction(newval, extra, source);
}

static struct config_bool *
find_bool(const char *name)
{
	return (struct config_bool *) find_option(name, false, false, FATAL);
}

/* Refuses the maintenance commands that are allowed in a read-only transaction. */
static void
process_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	switch (nodeTag(statement->utilityStmt))
	{
		case T_VacuumStmt:
			refuse(((VacuumStmt *) statement->utilityStmt)->is_vacuumcmd ? "VACUUM" : "ANALYZE");
			break;
		case T_ReindexStmt:
			refuse("REINDEX");
			break;
		case T_ClusterStmt:
			refuse("CLUSTER");
			break;
		case T_AlterSystemStmt:
			refuse("ALTER SYSTEM");
			break;
		case T_CheckPointStmt:
			refuse("CHECKPOINT");
			break;
		default:
			break;
	}
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(statement, text, read_only_tree, context, params, environment, dest, completion);
}

static bool
is_writer(const char *name)
{
	for (int i = 0; i < lengthof(writers); i++)
	{
		const char *writer = writers[i];
		size_t		length = strlen(writer);

		if (writer[length - 1] == '*' ? strncmp(name, writer, length - 1) == 0
			: strcmp(name, writer) == 0)
			return true;
	}
	return false;
}

/*
 * Refuses functions that change something outside of transactions, also by the fast path. Users can
 * write functions of any name, but none in C, and those call the ones that are refused here.
 */
static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	HeapTuple	tuple;

	if (previous_object_access)
		previous_object_access(access, class_id, object_id, sub_id, arg);
	if (access != OAT_FUNCTION_EXECUTE)
		return;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(object_id));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc function = (Form_pg_proc) GETSTRUCT(tuple);
		bool		is_refused = (function->prolang == ClanguageId || object_id < FirstNormalObjectId)
			&& is_writer(NameStr(function->proname));
		char	   *name = is_refused ? pstrdup(NameStr(function->proname)) : NULL;

		ReleaseSysCache(tuple);
		if (is_refused)
			refuse(name);
	}
}

static void
make_read_only(void)
{
	struct config_bool *transaction;

	/* A parallel worker has the transaction mode of its leader and cannot write. */
	if (is_read_only || InitializingParallelWorker)
		return;
	/* The replication protocol has commands that write, and that no hook sees. */
	if (am_walsender)
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a replication connection cannot be read-only"),
				 errhint("Connect without replication, or without tsdb_admin.read_only_connection as a role without tsdb_admin.read_only_role.")));
	is_read_only = true;

	find_bool("default_transaction_read_only")->check_hook = check_default;
	transaction = find_bool("transaction_read_only");
	previous_check_transaction = transaction->check_hook;
	transaction->check_hook = check_transaction;
	/* Of higher priority than the startup packet, and the value that RESET returns to. */
	SetConfigOption("default_transaction_read_only", "on", PGC_POSTMASTER, PGC_S_OVERRIDE);

	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	previous_object_access = object_access_hook;
	object_access_hook = object_access;
}

static void
assign_connection(bool newval, void *extra)
{
	if (newval)
		make_read_only();
}

/*
 * Only ALTER ROLE (and ALTER DATABASE, whose owner may want that) sets it: a value in the startup
 * packet would have priority over the role's.
 */
static bool
check_role(bool *newval, void **extra, GucSource source)
{
	if (source <= PGC_S_DATABASE_USER || source == PGC_S_TEST || InitializingParallelWorker)
		return true;
	GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
	GUC_check_errmsg("parameter \"tsdb_admin.read_only_role\" cannot be set in a session");
	GUC_check_errhint("Use ALTER ROLE ... SET tsdb_admin.read_only_role = true; it takes effect when the role connects.");
	return false;
}

/* The owner of a database must not make Howdah's superuser sessions read-only. */
static void
assign_role(bool newval, void *extra)
{
	if (newval && !GetSessionUserIsSuperuser())
		make_read_only();
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomBoolVariable("tsdb_admin.read_only_connection",
							 "Whether the session cannot write, and cannot change that.", NULL,
							 &read_only_connection, false, PGC_BACKEND, 0,
							 NULL, assign_connection, NULL);
	DefineCustomBoolVariable("tsdb_admin.read_only_role",
							 "Whether sessions of a role cannot write; set by ALTER ROLE.", NULL,
							 &read_only_role, false, PGC_USERSET, 0,
							 check_role, assign_role, NULL);
}
