//! Modelled disk drives: geometry, mechanics, queue and cache
