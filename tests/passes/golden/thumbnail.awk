# Cuts a picture that `show --format svg` drew down to a thumbnail: each rank's jobs, one path for each colour, and its
# memory below them, without names, tooltips, the axis and the legend.
function value(name) { return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : "" }
function short(x) { return sprintf("%.5g", sprintf("%.1f", x)) }

/^<title>/ { title = $0 }
/^<rect fill="url\(#idle\)" x/ { left = value("x"); width = value("width"); top = top ? top : value("y"); rows++ }
/^<rect class="o/ {
    fill = value("fill")
    if (!(fill in jobs)) order[++fills] = fill
    jobs[fill] = jobs[fill] "M" short(value("x")) " " short(value("y")) "h" short(value("width")) "v" short(value("height")) \
        "h-" short(value("width")) "z"
}
/^<path class="u"/ {
    memory = memory value("d")
    split(value("d"), bottom, /[ V]/)
}
END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"%s %s %s %s\" width=\"240\" height=\"%d\" preserveAspectRatio=\"none\">\n",
        left, top, width, bottom[2] - top, 17 * rows
    print title
    print "<path fill=\"#eee\" d=\"M" left " " top "h" width "V" bottom[2] "h-" width "z\"/>"
    print "<path fill=\"#b8bec6\" d=\"" memory "\"/>"
    for (i = 1; i <= fills; i++)
        print "<path fill=\"" order[i] "\" stroke=\"#fff\" stroke-width=\".4\" vector-effect=\"non-scaling-stroke\" d=\"" jobs[order[i]] "\"/>"
    print "</svg>"
}
