//! Numbers of the rules and the table for Prometheus, read when they are asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use standings_boards::Boards;
use standings_table::meter::{HotPartition, KINDS};
use standings_table::{Clock as _, EmbeddedTable, Meter, MeteredTable, SystemClock};

/// How many partitions are named, at most.
const PARTITIONS_NAMED: usize = 10;

pub(crate) struct Numbers {
    pub(crate) boards: Boards,
    pub(crate) table: Arc<MeteredTable<Arc<EmbeddedTable>>>,
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Numbers")
    }
}

type Encoded = Result<(), std::fmt::Error>;

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let encoder = &mut encoder;
        let statistics = self.boards.statistics();
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        counter(encoder, "plays", "Plays that counted", read(&statistics.plays))?;
        counter(encoder, "duplicates", "Plays that had counted before", read(&statistics.duplicates))?;
        counter(encoder, "conflicts", "Times another writer was first", read(&statistics.conflicts))?;
        counter(encoder, "checkpoints", "Checkpoints written", read(&statistics.checkpoints))?;
        let failures = read(&statistics.checkpoint_failures);
        counter(encoder, "checkpoint_failures", "Checkpoints that could not be written", failures)?;
        let closed = read(&statistics.seasons_closed);
        counter(encoder, "seasons_closed", "Seasons that became final since the start", closed)?;
        let taken = read(&statistics.snapshots);
        counter(encoder, "snapshots", "Snapshots taken since the start, of days and under labels", taken)?;
        gauge(encoder, "plays_under_way", "Plays being counted now", self.boards.plays_under_way() as i64)?;
        gauge(encoder, "ready", "1 if every ranking is complete", i64::from(self.boards.readiness().ready))?;
        self.rankings(encoder)?;
        self.seasons(encoder)?;
        let table = self.table.table();
        let commits = table.commit_statistics();
        counter(encoder, "table_commits", "Batches written and synced", commits.batches)?;
        counter(encoder, "table_transactions", "Transactions answered", commits.transactions)?;
        counter(encoder, "table_rows", "Rows written, of items and indexes", commits.rows)?;
        let help = "Transactions a batch, by the largest size counted";
        let sizes = encoder.encode_descriptor(
            "table_commit_transactions",
            help,
            None,
            ConstCounter::new(0_u64).metric_type(),
        )?;
        let mut sizes = sizes;
        for (at, count) in commits.sizes.iter().enumerate() {
            let size = (1_u64 << at).to_string();
            ConstCounter::new(*count).encode(sizes.encode_family(&[("up_to", size.as_str())])?)?;
        }
        gauge(encoder, "table_disk_bytes", "Bytes on disk, the journal included", table.disk_bytes() as i64)?;
        self.capacity(encoder)
    }
}

impl Numbers {
    fn rankings(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let seasons = self.boards.memory().seasons();
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut users = encoder.encode_descriptor("ranking_users", "Users in a ranking", None, kind)?;
        for memory in &seasons {
            let labels = [("board", memory.season.board.as_str()), ("season", memory.season.season.as_str())];
            ConstGauge::new(memory.users as i64).encode(users.encode_family(&labels)?)?;
        }
        let help = "Bytes of a ranking, without the ids that all share";
        let mut bytes = encoder.encode_descriptor("ranking_bytes", help, None, kind)?;
        for memory in &seasons {
            let labels = [("board", memory.season.board.as_str()), ("season", memory.season.season.as_str())];
            ConstGauge::new(memory.bytes as i64).encode(bytes.encode_family(&labels)?)?;
        }
        let shared = self.boards.memory().shared_bytes() as i64;
        gauge(encoder, "ranking_ids_bytes", "Bytes of the ids that all rankings share", shared)
    }

    /// Seasons by state, and how far the snapshots are that are being taken, those of closing seasons included.
    fn seasons(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut seasons = encoder.encode_descriptor("seasons", "Seasons of a board, by state", None, kind)?;
        for (board, counts) in self.boards.season_counts() {
            for (state, count) in counts {
                let labels = [("board", board.as_str()), ("state", state.as_str())];
                ConstGauge::new(count as i64).encode(seasons.encode_family(&labels)?)?;
            }
        }
        let under_way = self.boards.snapshots_under_way();
        for (name, help) in [
            ("snapshot_users_done", "Users copied into a snapshot that is being taken"),
            ("snapshot_users", "Users of a snapshot that is being taken"),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for progress in &under_way {
                let labels = [("board", progress.board.as_str()), ("label", progress.label.as_str())];
                let users = if name == "snapshot_users" { progress.players } else { progress.done };
                ConstGauge::new(users as i64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Capacity as DynamoDB would bill it, and the partitions that run hot.
    fn capacity(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let meter: &Meter = self.table.meter();
        let now_ms = SystemClock.now_ms();
        let kind = ConstCounter::new(0_f64).metric_type();
        for (name, help) in [
            ("table_read_units", "Read units as DynamoDB bills them, by call"),
            ("table_write_units", "Write units as DynamoDB bills them, by call"),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for call in KINDS {
                let totals = meter.totals(call);
                let units = if name == "table_read_units" { totals.read } else { totals.written };
                let label = format!("{call:?}").to_lowercase();
                ConstCounter::new(units.as_f64())
                    .encode(family.encode_family(&[("call", label.as_str())])?)?;
            }
        }
        let hot = |hot: Vec<HotPartition>| hot.len() as i64;
        let help = "Partitions above 1,000 write units in the last second";
        gauge(encoder, "table_hot_partitions_written", help, hot(meter.over_write_limit(now_ms)))?;
        let help = "Partitions above 3,000 read units in the last second";
        gauge(encoder, "table_hot_partitions_read", help, hot(meter.over_read_limit(now_ms)))?;
        let help = "Write units in the last second of the partitions most written to";
        let kind = ConstGauge::new(0_f64).metric_type();
        let mut family = encoder.encode_descriptor("table_partition_write_units", help, None, kind)?;
        for hot in meter.hottest_written(now_ms, PARTITIONS_NAMED) {
            let index = hot.partition.index.as_deref().unwrap_or("");
            let labels = [("index", index), ("partition", hot.partition.key.as_str())];
            ConstGauge::new(hot.units_at_most.as_f64()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Encoded {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> Encoded {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
