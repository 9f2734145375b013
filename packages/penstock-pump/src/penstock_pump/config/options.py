"""Every option of Sarracenia v2 and sr3: its spellings, its setting, and what becomes of it.

An option is *honoured*, *refused* (an error with the reason and the alternative), or *without
effect* (a warning with the reason). The page of all options (`docs/pump-options.md`) is generated
from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock_pump.config.dialect import Dialect
from penstock_pump.config.settings import Component
from penstock_pump.config.values import (
    disk_driver,
    duration,
    events,
    flag,
    inverse_flag,
    kilobytes,
    paths,
    seconds,
    size,
    split_count,
    sr3_count,
    sr3_duration,
    sr3_kilobytes,
    sr3_number,
    sr3_seconds,
    sr3_suppression_time,
    sum_method,
    suppression_time,
    verified_tls,
    words,
)

OptionParser = Callable[[str], Any]


class OptionStatus(StrEnum):
    HONOURED = "honoured"
    REFUSED = "refused"
    WITHOUT_EFFECT = "without effect"


_C = Component
POSTERS: Final = (_C.POST, _C.WATCH, _C.POLL)
DOWNLOADERS: Final = (_C.SUBSCRIBE, _C.SARRA, _C.FLOW)
FORWARDERS: Final = (_C.WINNOW, _C.SHOVEL)
PLACING: Final = (*DOWNLOADERS, _C.SENDER)
CONSUMERS: Final = (*PLACING, *FORWARDERS, _C.REPORT)
PUBLISHERS: Final = (*POSTERS, *PLACING, *FORWARDERS)
ALL: Final = (*PUBLISHERS, _C.REPORT)


@dataclass(frozen=True, slots=True)
class ConfOption:
    v2: tuple[str, ...]
    sr3: tuple[str, ...]
    setting: str | None  #: of `PumpSettings`; None where the reader handles it itself
    parse: OptionParser
    components: tuple[Component, ...]
    status: OptionStatus = OptionStatus.HONOURED
    note: str = ""

    @property
    def name(self) -> str:
        return (self.sr3 or self.v2)[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sr3, *self.v2)))

    @property
    def type(self) -> str:
        return _TYPES[self.parse]

    def value(self, text: str, dialect: Dialect) -> Any:
        """The two programs write sizes, numbers and durations differently."""
        parse = _SR3_PARSERS.get(self.parse, self.parse) if dialect is Dialect.SR3 else self.parse
        return parse(text)


_TYPES: Final[dict[OptionParser, str]] = {
    str: "text",
    int: "integer",
    split_count: "integer",
    float: "number",
    flag: "flag",
    inverse_flag: "flag",
    duration: "duration",
    seconds: "duration",
    suppression_time: "duration",
    size: "size",
    kilobytes: "size",
    words: "list",
    paths: "list of paths",
    events: "set",
    sum_method: "method",
    verified_tls: "text",
    disk_driver: "text",
}

_SR3_PARSERS: Final[dict[OptionParser, OptionParser]] = {
    int: sr3_count,
    float: sr3_number,
    size: sr3_count,
    kilobytes: sr3_kilobytes,
    duration: sr3_duration,
    seconds: sr3_seconds,
    suppression_time: sr3_suppression_time,
}


def _honoured(
    components: Iterable[Component], *rows: tuple[str, str, str | None, OptionParser]
) -> list[ConfOption]:
    """Rows of v2's names, sr3's names (`=`: the same), the setting and the type."""
    return [
        ConfOption(
            tuple(v2.split()),
            tuple((v2 if sr3 == "=" else sr3).split()),
            setting,
            parse,
            tuple(components),
        )
        for v2, sr3, setting, parse in rows
    ]


def _other(status: OptionStatus, *rows: tuple[str, str, OptionParser, str]) -> list[ConfOption]:
    return [
        ConfOption(
            tuple(v2.split()), tuple((v2 if sr3 == "=" else sr3).split()), None, parse, ALL,
            status, note,
        )
        for v2, sr3, parse, note in rows
    ]  # fmt: skip


# fmt: off
TABLE: Final[tuple[ConfOption, ...]] = (
    *_honoured(
        ALL,
        ("broker b", "=", "broker", str),
        ("include config c", "include config", None, str),
        ("declare", "=", None, str),
        ("set", "set setting", None, str),
        ("", "dialect", None, str),
        ("accept get", "accept get", None, str),
        ("reject", "=", None, str),
        ("accept_unmatch accept_unmatched au", "acceptUnmatched", "accept_unmatched", flag),
        ("events e", "fileEvents", "events", events),
        ("vip", "=", "vip", words),
        ("instances instance i", "instances", "instances", int),
        ("heartbeat", "housekeeping", "housekeeping", seconds),
        ("loglevel ll", "logLevel", "log_level", str),
        ("debug", "=", None, flag),
        ("log_reject", "logReject", "log_reject", flag),
        ("statehost", "=", "state_host", flag),
        ("hostname", "=", "hostname", str),
        ("timeout", "=", "timeout", seconds),
        ("dry_run simulate", "dry_run simulation", "dry_run", flag),
        ("post_rate_limit", "messageRateMax", "message_rate_max", float),
        ("", "messageCountMax", "message_count_max", int),
        ("", "fileSizeMax", "file_size_max", size),
        ("file_time_limit", "fileAgeMax nodupe_fileAgeMax", "max_age", seconds),
        (
            "suppress_duplicates sd cache caching no_duplicates noduplicates nd", "nodupe_ttl",
            "suppress_duplicates", suppression_time,
        ),
        (
            "suppress_duplicates_basis suppress_basis sdb cache_basis cb", "nodupe_basis",
            "suppress_basis", str,
        ),
        ("callback", "callback flowCallback flowcb flow_callback fcb", None, str),
        ("", "callback_prepend cbp flowCallbackPrepend flowcb_prepend fcbp", None, str),
        (
            "plugin on_message on_msg on_file on_part on_post on_start on_stop on_heartbeat on_hb"
            " on_line on_html_page",
            "on_message on_file on_part on_post on_start on_stop on_heartbeat plugin", None, str,
        ),
        ("private_hosts", "=", "private_hosts", flag),
        ("file_directories", "=", "file_directories", paths),
        ("proxy", "=", "proxy", str),
        ("plugin_path", "=", "plugin_path", paths),
        ("", "httpUserAgent", "user_agent", str),
        ("", "varTimeOffset", "var_time_offset", seconds),
    ),
    *_honoured(
        CONSUMERS,
        ("exchange_suffix", "exchangeSuffix", "exchange_suffix", str),
        ("exchange_split", "exchangeSplit", "exchange_split", split_count),
        ("topic_prefix tp", "topicPrefix", "topic_prefix", words),
        ("queue queue_name qn", "queueName", "queue", str),
        ("", "queueShare", None, str),
        ("", "queueType", None, str),
        ("", "amqp_queue_args", None, str),
        ("expire expiry", "expire", "expire", duration),
        ("prefetch", "=", "prefetch", int),
        ("bind_queue bq", "queueBind", "bind_queue", flag),
        ("reset", "=", "reset", flag),
        ("", "messageAgeMax", "message_age_max", seconds),
        ("attempts at", "attempts", "attempts", int),
        ("retry retry_mode", "", "retry", flag),
        ("", "retryCountMax", "retry_count_max", int),
        ("retry_ttl", "=", "retry_ttl", seconds),
        ("report_back reportback rb", "report", "report_back", flag),
        ("report_exchange lx le", "report_exchange", "report_exchange", str),
        ("", "report_broker", "report_broker", str),
        ("cluster_aliases ca", "", "cluster_aliases", words),
        ("gateway_for gf", "", "gateway_for", words),
        ("source_from_exchange sfe", "sourceFromExchange", "source_from_exchange", flag),
        ("", "sourceFromMessage", "source_from_message", flag),
        ("", "inlineOnly", "inline_only", flag),
        ("", "baseUrl_relPath", "base_url_relpath", flag),
        ("", "acceptSizeWrong", "accept_size_wrong", flag),
    ),
    *_honoured(
        ALL,
        ("subtopic sub", "subtopic", None, str),
        ("", "topic", None, str),
        ("exchange ex", "exchange", "exchange", str),
    ),
    *_honoured((*PLACING, *FORWARDERS), ("on_report on_rpt", "on_report", None, str)),
    *_honoured((*CONSUMERS, *POSTERS), ("cluster cl from_cluster fc", "cluster", "cluster", str)),
    *_honoured((*PLACING, _C.POLL), ("directory", "=", "directory", str)),
    *_honoured(
        (*PLACING, _C.POST, _C.WATCH),
        ("preserve_mode pm", "permCopy", "preserve_mode", flag),
        ("preserve_time pt", "timeCopy", "preserve_time", flag),
    ),
    *_honoured(
        PLACING,
        ("mirror", "=", "mirror", flag),
        ("strip", "=", "strip", str),
        ("flatten", "=", "flatten", str),
        ("filename", "=", "filename", str),
        ("kbytes_ps", "", "bandwidth", kilobytes),
        ("", "byteRateMax", "bandwidth", size),
        ("delete", "=", "delete", flag),
        ("inplace in assemble", "inplace", "inplace", flag),
        ("", "sundew_compat_regex_first_match_is_zero", "groups_from_zero", flag),
    ),
    *_honoured(
        DOWNLOADERS,
        ("default_mode chmod dm", "permDefault", "default_mode", str),
        ("default_dir_mode chmod_dir ddm", "permDirDefault", "default_dir_mode", str),
        ("", "download", "download", flag),
        ("notify_only n no_download", "", "download", inverse_flag),
        ("discard d download-and-discard", "discard", "discard", flag),
        ("do_download", "=", None, str),
    ),
    *_honoured(
        (*DOWNLOADERS, _C.SENDER, *POSTERS),
        ("inflight lock", "inflight", None, str),
        ("base_dir bd document_root dr", "baseDir documentRoot", "base_dir", str),
        (
            "post_base_dir pbd post_document_root pdr", "post_baseDir post_documentRoot",
            "post_base_dir", str,
        ),
    ),
    *_honoured(
        PUBLISHERS,
        ("post_base_url pbu url u post_url", "post_baseUrl", "post_base_url", str),
        ("post_broker pb", "post_broker", "post_broker", str),
        ("post_exchange pe px", "post_exchange", "post_exchange", str),
        ("post_exchange_suffix", "post_exchangeSuffix", "post_exchange_suffix", str),
        ("post_exchange_split pes pxs", "post_exchangeSplit", "post_exchange_split", int),
        ("post_topic_prefix ptp", "post_topicPrefix", "post_topic_prefix", str),
        ("", "post_topic", "post_topic", str),
        ("", "post_format", "post_format", str),
        ("persistent", "=", "persistent", flag),
        ("message_ttl message-ttl", "post_messageAgeMax", "message_ttl", duration),
        ("source", "=", "source", str),
        ("to_clusters to to_cluster", "to_clusters to", "to_clusters", str),
        ("header", "=", None, str),
    ),
    *_honoured(
        POSTERS,
        ("path p", "path", None, paths),
        ("sum", "identity integrity identity_method", "sum", sum_method),
        ("blocksize parts", "blockSize", "blocksize", size),
        ("randomize r", "randomize", "randomize", flag),
        ("recursive rec", "recursive", "recursive", flag),
        ("rename rn", "rename", "rename", str),
        ("follow_symlinks fs", "follow_symlinks", "follow_links", flag),
        ("realpath_post realpath real", "realpathPost", "real_path", flag),
        ("", "fileAgeMin nodupe_fileAgeMin", "min_age", seconds),
        ("inline inl content", "inline", None, flag),
        ("inline_max imx content_max", "inlineByteMax", "inline", size),
        (
            "inline_encoding inlenc content_encoding", "inlineEncoding", "inline_encoding", str,
        ),
    ),
    *_honoured(
        (_C.WATCH,),
        ("post_on_start pos", "post_on_start", "existing", flag),
        ("on_watch", "", None, str),
    ),
    *_honoured(
        (_C.SENDER,),
        ("", "nofsetstat", None, flag),
        ("do_send", "=", None, str),
    ),
    *_honoured((_C.POLL,), ("do_poll", "", None, str)),
    *_honoured((_C.SENDER, _C.POLL), ("destination", "sendTo remoteUrl", None, str)),
    *_honoured(
        (_C.POLL, _C.FLOW),
        ("", "pollUrl", "poll_url", str),
        ("sleep", "=", "sleep", seconds),
        ("", "scheduled_interval", "scheduled_interval", seconds),
        ("", "scheduled_hour", "scheduled_hour", words),
        ("", "scheduled_minute", "scheduled_minute", words),
        ("", "scheduled_time", "scheduled_time", words),
        ("destination_timezone", "timezone", "timezone", str),
    ),
    *_honoured((_C.FLOW,), ("", "flowMain", None, str)),
    *_other(
        OptionStatus.REFUSED,
        ("queue_suffix", "", str, "name the whole queue with queueName"),
        ("save s_save restore post_queue restore_to_queue restore2queue r2q rq save_file sf",
         "save restore", str, "use `penstock pump save` and `penstock pump restore`"),
        ("move", "", str, "`watch` announces moved files by itself"),
        ("outlet pipe", "", str, "print posts with a plugin, or use `penstock pump save`"),
        ("remote_config_url", "", str, "fetch the configuration before the start, or include it"),
        ("", "import no-import", str, "callbacks import what they need: install it beside them"),
        ("realpath_filter fr", "realpathFilter", flag, "use realpathPost, which filters, too"),
        ("destfn_script", "", str, "use a plugin with a method `destfn`"),
        ("on_data", "", str,
         "blocks are fetched in any order, and are checked as announced: change the whole file in"
         " `on_file`"),
        ("do_get", "", str,
         "it writes one block of a file, here files are complete before they get a name: use"
         " `do_download`"),
        ("do_put", "", str,
         "it sends one block of a file, here files are complete before they get a name: use"
         " `do_send`"),
        ("do_task", "", str,
         "a component has one task: use `on_message` before a transfer, `on_file` after a"
         " download"),
        ("", "report_topic report_topicPrefix report_exchangeSplit", str,
         "reports have the topic of sr_report(7), v02.report and the directories"),
    ),
    *_other(
        OptionStatus.WITHOUT_EFFECT,
        ("overwrite o", "overwrite", flag,
         "a file with the announced checksum is not fetched again; one that differs is replaced"),
        ("durable", "=", flag, "queues and exchanges are durable"),
        ("", "auto_delete", flag, "a queue stays until `expire` or `cleanup`"),
        ("declare_queue dq", "queueDeclare", flag, "an existing queue is used as it is"),
        ("declare_exchange de dx", "exchangeDeclare", flag, "an existing one is used as it is"),
        ("", "amqp_consumer", flag, "queues are always consumed with basic.consume"),
        ("", "qos clean_session max_inflight_messages max_queued_messages receiveMaximum", str,
         "MQTT sessions last, with QoS 1 and `prefetch` messages at a time"),
        ("tls_rigour tls_rigor tlsr", "tlsRigour", verified_tls,
         "certificates are always verified"),
        ("batch", "=", int, "acknowledgements and confirms are batched by themselves"),
        ("bufsize", "bufSize", size, "buffers follow the size of the files"),
        ("", "topicCopy", flag, "a post that is forwarded unchanged keeps its topic"),
        ("", "retry_refilter", flag, "a retried post always passes the filters again"),
        ("", "retryEmptyBeforeExit", flag, "retries are on disk and continue at the next start"),
        ("", "retry_driver nodupe_driver redisqueue_serverurl nodupe_redis_serverurl"
         " nodupe_redis_keybase", disk_driver, "retries and fingerprints are kept on disk"),
        ("reconnect rr", "reconnect", flag, "lost connections are always opened again"),
        ("partflg part_ext", "partflg part_ext", str, "blocks are set with `blockSize`"),
        ("force_polling fp", "force_polling", flag,
         "the whole tree is also scanned every `rescan` seconds"),
        ("poll_without_vip pwv", "", flag, "without the vip nothing is polled"),
        ("ls_file_index", "", int, "the columns of a listing are recognised"),
        ("chmod_log default_log_mode dlm", "permLog", str, "only the owner can read logs"),
        ("logdays ld logrotate lr logrotate_interval lri log_rotate", "logRotateCount logRotate"
         " logRotateInterval logRotate_interval", str, "rotate logs with the system's logrotate"),
        ("log_format post_log_format msg_total_interval msg_total_count post_total_interval"
         " file_total_interval cache_stat", "logFormat logJson logStdout logMetrics logEvents"
         " logMessageDump logDuplicates messageDebugDump metrics_writeInterval metricsFilename",
         str, "see --verbose, --metrics and `penstock pump status`"),
        ("sanity_log_dead sld", "runStateThreshold_hung runStateThreshold_idle"
         " runStateThreshold_lag runStateThreshold_retry runStateThreshold_slow"
         " runStateThreshold_reject runStateThreshold_disconnected runStateThreshold_cpuSlow",
         str, "`penstock pump status` shows the figures"),
        ("", "messageRateMin", float, "`penstock pump status` shows the rate"),
        ("accel_cp_command accel_scp_command accel_wget_command accel_cp_threshold"
         " accel_scp_threshold accel_wget_threshold accel_threshold download_cp_command",
         "accelThreshold accelCpCommand accelScpCommand accelWgetCommand accelFtpgetCommand"
         " accelFtpputCommand", str, "files are transferred without other programs"),
        ("", "httpsSafeQuote ftpFilenameEncoding", str, "URLs are quoted by RFC 3986, in UTF-8"),
        ("hb_memory_max hb_memory_multiplier hb_memory_baseline_file",
         "MemoryMax MemoryMultiplier MemoryBaseLineFile", str,
         "memory is limited by `prefetch`, and that of a process by the system's service manager"),
        ("xattr_disable xattr_disabled xd", "", flag, "extended attributes are not used"),
        ("", "v2compatRenameDoublePost wololo", flag, "both forms of a move are read and written"),
        ("admin", "admin", str, "exchanges are declared with the user of the broker"),
        ("feeder manager", "feeder", str, "exchanges are declared with the user of the broker"),
        ("role pump pump_flag users set_passwords report_daemons", "users", str,
         "users belong to the broker: `penstock user`"),
        ("interface max_queue_size use_amqplib use_pika windows_run wr use_pattern", "", str,
         "it configures v2's own libraries"),
        ("no", "no count", int, "--instance numbers the processes"),
        ("action a help h", "action", str, "actions are commands: `penstock pump start`"),
    ),
)
# fmt: on


def normalised_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


OPTIONS: Final[dict[str, ConfOption]] = {}
for _option in TABLE:
    for _name in _option.names:
        OPTIONS.setdefault(normalised_name(_name), _option)


_SPELLINGS: Final = (
    (Dialect.V2, frozenset(name for option in TABLE for name in option.v2)),
    (Dialect.SR3, frozenset(name for option in TABLE for name in option.sr3)),
)


def find_option(name: str) -> ConfOption | None:
    return OPTIONS.get(normalised_name(name.lstrip("-")))


def dialects_of(name: str) -> frozenset[Dialect]:
    """The dialects that spell an option so."""
    return frozenset(dialect for dialect, names in _SPELLINGS if name in names)
