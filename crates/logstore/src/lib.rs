//! The log-structured core: records, logs, extent map, recovery scan
