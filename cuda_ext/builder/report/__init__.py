"""Reports about builds: an HTML page, a trace for Chrome and Perfetto, and the difference of two builds."""
