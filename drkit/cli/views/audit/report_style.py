"""The style sheet of audits' HTML reports, light and dark."""

STYLE = """
:root{color-scheme:light dark;--fg:#1b2430;--bg:#f6f7f9;--card:#fff;--dim:#66717f;--line:#dfe4ea;--matched:#7fa99b;
--lost:#c0272d;--corrupted:#8e3fa8;--duplicated:#d1780f;--foreign:#2f6fbd;--reordered:#a0851a;--unseen:#6f7c8a;--unreadable:#5b2333;--clean:#12805c;--incomplete:#a0851a}
@media(prefers-color-scheme:dark){:root{--fg:#e5eaf0;--bg:#12161b;--card:#1a2028;--dim:#93a0af;--line:#2b3440;
--matched:#3f7263;--lost:#ff7a76;--corrupted:#c98be0;--duplicated:#f0a44b;--foreign:#77aef0;--reordered:#d6bb4e;--unseen:#93a0af;--unreadable:#b98a74;--clean:#4fc79b;
--incomplete:#d6bb4e}}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:2rem auto;padding:0 1rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.3rem;margin:1rem 0}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin:.2rem 0}h3{font-size:.95rem;margin:1.2rem 0 .3rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;text-align:left}td,th{padding:.25rem .8rem .25rem 0;vertical-align:top;
border-bottom:1px solid var(--line)}.n{text-align:right}.dim{color:var(--dim)}.big{font-size:1.6rem;font-weight:600}
.clean{color:var(--clean)}.incomplete{color:var(--incomplete)}.deviated{color:var(--lost)}
.topic{min-width:15rem;overflow-wrap:anywhere}svg{display:block;max-width:100%;height:auto}
svg text{fill:var(--dim);font-size:11px;font-family:system-ui,sans-serif}pre{margin:0;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.82rem}.key{display:inline-block;
width:.8em;height:.8em;border-radius:.2em;margin:0 .35em 0 0}.legend>span{white-space:nowrap;margin-right:1em}
p,li,h2{overflow-wrap:anywhere}.bad{font-weight:600}.chart{width:100%;height:5.6rem}.axis{display:flex;justify-content:space-between;gap:1rem;
flex-wrap:wrap;font-size:.75rem;color:var(--dim)}
.finding{display:grid;grid-template-columns:9rem 1fr 1fr;gap:.3rem 1rem;
padding:.4rem 0;border-top:1px solid var(--line);font-size:.87rem}.finding>div{min-width:0;overflow-wrap:anywhere}
details{margin:-.4rem 0 1rem}details ul,ul.dim{margin:.3rem 0;font-size:.87rem}
@media(max-width:44rem){.finding{grid-template-columns:minmax(0,1fr)}section{padding:.7rem .8rem}main{padding:0 .5rem}
.topics tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}.topics th,.topics .zero{display:none}
.topics td{display:inline-block;border:0;padding:0 1rem 0 0}.topics .topic{display:block;padding:0}
.topics td[data-name]::before{content:attr(data-name) " ";color:var(--dim);font-weight:400}}
"""
