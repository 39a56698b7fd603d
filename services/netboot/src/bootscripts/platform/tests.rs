//! Boot gates of platforms, and private files behind them.
