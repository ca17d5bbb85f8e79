# Windows of public traces, for other scripts: writes files into $work from $traces with $manylogs.
# shellcheck shell=sh disable=SC2154
cut_window() { # NAME FILE WINDOW
    "$manylogs" trace convert "$traces/$2" --window "$3" -o "$work/$1" >"$work/log"
}
cut_window hadoop-r hadoop_eternity9.Q.csv.zst busiest-reads:5m
cut_window youcut-r mob_you_cut_exec.csv.gz busiest-reads:5m
cut_window genshin-r mob_genshin_impact_exec.csv.gz busiest-reads:5m
cut_window slideshow-r mob_slideshow_exec.csv.gz busiest-reads:5m
cut_window telegram-w mob_telegram_exec.csv.gz busiest-writes:5m
cut_window telegram-x mob_telegram_exec.csv.gz random:5m
cut_window cloud-w cloudPhysicsIO.vscsi.zst busiest-writes:5m
cut_window cloud-r cloudPhysicsIO.vscsi.zst busiest-reads:5m
cut_window cloud-x cloudPhysicsIO.vscsi.zst random:5m
cut_window financial umass_financial1_first10k.disksim.zst 0+5m
cut_window msr msr10k.rw_20_80.105.trace.zst 0+5m
