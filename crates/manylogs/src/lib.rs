//! Manylogs at block level: placement, mapping table, checkpoint, recovery
