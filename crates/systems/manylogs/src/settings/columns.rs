//! Parameters of volumes on arrays.

use manylogs_block::Sectors;

use super::config::{LogPlacement, VolumeConfig};

/// If there are more columns, groups and logs are longer in proportion.
const COLUMNS_USUAL: u64 = 4;
/// Records are whole multiples of 4 KiB.
const RECORD_STEP: u64 = 8;

impl VolumeConfig {
    /// These parameters for a volume on an array, where each region holds a log for each of
    /// `columns` columns. Up to four columns share the given length of a log. With more of them,
    /// groups and logs grow in proportion, so that no column's log is shorter than a quarter of
    /// that length. Records are no longer than half of a column's log, which holds four of the
    /// largest logged writes.
    #[must_use]
    pub fn on_columns(self, columns: u16) -> Self {
        let columns = u64::from(columns.max(1));
        let times = |len: Sectors| Sectors(len.0 * columns.max(COLUMNS_USUAL) / COLUMNS_USUAL);
        let log = times(self.log);
        let placement = match self.placement {
            LogPlacement::EveryGroup(group) => LogPlacement::EveryGroup(times(group)),
            other => other,
        };
        Self { log, placement, ..self.on_logs_of(Sectors(log.0 / columns)) }
    }

    /// These parameters with records and logged writes that are no longer than logs of the length
    /// `log` take.
    pub(crate) fn on_logs_of(self, log: Sectors) -> Self {
        let each = Self { log, ..self };
        let record = each.longest_record().0 / RECORD_STEP * RECORD_STEP;
        let record = Sectors(self.record.0.min(record));
        let threshold = Sectors((log.0 / 4).saturating_sub(RECORD_STEP));
        Self { record, threshold: self.threshold.min(threshold).min(record), ..each }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_columns_log_holds_records_whatever_the_number_of_columns() {
        let usual = VolumeConfig::default();
        for columns in 1..=256_u16 {
            let on = usual.on_columns(columns);
            let each = VolumeConfig { log: Sectors(on.log.0 / u64::from(columns)), ..on };
            assert_eq!(each.validate(), Ok(()), "{columns} columns");
            assert!(each.log.0 * 4 >= usual.log.0, "{columns} columns: {}", each.log.0);
            let LogPlacement::EveryGroup(group) = on.placement else {
                panic!("{:?}", on.placement)
            };
            let LogPlacement::EveryGroup(before) = usual.placement else { panic!("no groups") };
            let share = |log: Sectors, group: Sectors| log.0 as f64 / group.0 as f64;
            let change = share(on.log, group) / share(usual.log, before);
            assert!((change - 1.0).abs() < 1e-3, "{columns} columns: {change}");
        }
    }

    #[test]
    fn four_columns_and_one_have_the_usual_parameters() {
        let usual = VolumeConfig::default();
        for columns in [1, 2, 4] {
            assert_eq!(usual.on_columns(columns), usual, "{columns} columns");
        }
        let short = usual.with_log(Sectors(8192)).on_columns(4);
        assert_eq!((short.log, short.record), (Sectors(8192), Sectors(1024)));
    }
}
