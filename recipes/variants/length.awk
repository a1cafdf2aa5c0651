# length.awk - draws what bench_length measured, as an SVG of four panels with logarithmic axes: a line
# for each kind of attention against the length n of a sentence.
#
# usage: awk -v title=TEXT -f length.awk FILE.tsv >FILE.svg
BEGIN {
    FS = "\t"
    split("3 4 6 7", column, " ")
    name[1] = "training: time of a step, ms"
    name[2] = "training: memory of a step, MiB"
    name[3] = "decoding: time of a token at position n, ms"
    name[4] = "decoding: KV cache at position n, MiB"
    split("#2f6fdd #d9480f #2b8a3e #9c36b5 #0b7285 #5f3dc4", color, " ")
    split("none,7 4,2 4,9 3 2 3,12 4,4 2", dash, ",")
    width = 340; height = 200; left = 66; top = 92; across = 440; down = 280
}
function log2(x) { return log(x) / log(2) }
function x_of(n) { return (log2(n) - log2(n_min)) / (log2(n_max) - log2(n_min)) * width }
function y_of(v) { return height - (log(v) - log(low)) / (log(high) - log(low)) * height }
# 0.01, 1, 100; from 10,000 on with a separator
function number(v) {
    if (v < 1) return sprintf("%g", v)
    return v < 10000 ? sprintf("%d", v) : sprintf("%d,%03d", v / 1000, v % 1000)
}
/^[^#]/ {
    if (!($1 in seen)) { seen[$1] = 1; kind[++kinds] = $1 }
    count[$1]++
    n[$1, count[$1]] = $2
    for (p = 1; p <= 4; p++) value[$1, count[$1], p] = $column[p]
    if (!n_min || $2 < n_min) n_min = $2
    if ($2 > n_max) n_max = $2
}
function draw_axes(p,    v, m) {
    printf "<text x=\"0\" y=\"-10\" class=\"ink\" font-weight=\"bold\">%s</text>\n", name[p]
    for (v = low; v <= high * 1.001; v *= 10) {
        printf "<path d=\"M0 %.1fh%d\" class=\"grid\"/>", y_of(v), width
        printf "<text x=\"-8\" y=\"%.1f\" text-anchor=\"end\" class=\"ink\">%s</text>\n", y_of(v) + 4, number(v)
    }
    for (m = n_min; m <= n_max; m *= 2) {
        printf "<path d=\"M%.1f 0v%d\" class=\"grid\"/>", x_of(m), height
        if (int(log2(n_max / m) + 0.5) % 2 == 0)
            printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" class=\"ink\">%s</text>\n", x_of(m), height + 18, number(m)
    }
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" class=\"ink\">n, tokens</text>\n", width / 2, height + 36
}
function draw_line(k, p,    i, path) {
    path = ""
    for (i = 1; i <= count[kind[k]]; i++)
        path = path sprintf("%s%.1f %.1f", i == 1 ? "M" : " L", x_of(n[kind[k], i]), y_of(value[kind[k], i, p]))
    printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\"/>\n", path, color[k], dash[k]
    for (i = 1; i <= count[kind[k]]; i++)
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>", x_of(n[kind[k], i]), y_of(value[kind[k], i, p]), color[k]
    print ""
}
function draw_panel(p,    k, i, v) {
    low = high = 0
    for (k = 1; k <= kinds; k++)
        for (i = 1; i <= count[kind[k]]; i++) {
            v = value[kind[k], i, p]
            if (!low || v < low) low = v
            if (v > high) high = v
        }
    # whole powers of ten
    for (v = 1e-6; v * 10 <= low * 1.000001; v *= 10) {}
    low = v
    while (v < high) v *= 10
    high = v
    printf "<g transform=\"translate(%d %d)\">\n", left + (p - 1) % 2 * across, top + int((p - 1) / 2) * down
    draw_axes(p)
    for (k = 1; k <= kinds; k++) draw_line(k, p)
    print "</g>"
}
END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"880\" height=\"624\" viewBox=\"0 0 880 624\" font-family=\"'Noto Sans', 'DejaVu Sans', sans-serif\" font-size=\"13\">"
    print "<style>.paper{fill:#fff}.ink{fill:#24292f}.grid{stroke:#d0d7de;stroke-width:1}"
    print "@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#c9d1d9}.grid{stroke:#30363d}}</style>"
    print "<rect width=\"100%\" height=\"100%\" class=\"paper\"/>"
    printf "<text x=\"%d\" y=\"24\" class=\"ink\" font-size=\"14\">%s</text>\n", left, title
    for (k = 1; k <= kinds; k++) {
        x = left + (k - 1) * 120
        printf "<path d=\"M%d 44h36\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\"/>", x, color[k], dash[k]
        printf "<text x=\"%d\" y=\"48\" class=\"ink\">%s</text>\n", x + 44, kind[k]
    }
    for (p = 1; p <= 4; p++) draw_panel(p)
    print "</svg>"
}
