// words.js - the page in English and Chinese. English is what index.html says, and EN for what is said
// later; an element with data-t has its text here, one with data-t-label its name, and one with
// data-t-hint its placeholder.
import { ENGLISH } from "./explore.js";

const EN = {
    languageName: "中文",
    detect: "Detect language",
    detected: "{0} (detected)",
    "any-model": "automatic",
    count: "{0} characters",
    "count-of": "{0} of {1} characters",
    time: "{0} ms",
    score: "score {0}",
    copied: "Copied.",
    loop: "The translation repeats itself.",
    probability: "{0}% likely",
    "from-words": "{0} is aligned with {1}.",
    "from-nothing": "{0} is aligned with no word.",
    unreachable: "The server cannot be reached.",
    failed: "The server answered with an error ({0}).",
    "file-progress": "{0} of {1} segments translated",
    "file-done": "{0} is ready: {1} segments.",
    "file-cancelled": "The translation of {0} was cancelled.",
    "file-kind": "{0} is neither .txt nor .html nor .srt.",
    "file-empty": "{0} has no text to translate.",
    "file-utf8": "{0} is not encoded in UTF-8.",
    looking: "Translating …",
    example: "The cat that chased the mouse was hungry.",
    "one-sentence": "This is shown for a single sentence of up to 100 tokens.",
    "beam-token": "{0}: {1}% likely",
    "beam-end": "end of the sentence",
    "beam-result": "translation {0}",
    "beam-finished": "finished, not among the best",
    "beam-path": "leads to a translation",
    "beam-kept": "kept",
    "beam-pruned": "pruned",
    "beam-ended": "finished, with its score",
    "beam-all": "show pruned candidates",
    "beam-point": "Point at a token to see its probability and its hypothesis.",
    loss: "Loss",
    "valid-loss": "Validation loss",
    scores: "Validation scores",
    rate: "Learning rate",
    norm: "Gradient norm",
    speed: "Tokens per second",
    "at-step": "step {0}: {1}",
    step: "step {0}",
    source: "Source",
    reference: "Reference",
    "step-of": "step {0} of {1}",
    "run-running": "Running",
    "run-finished": "Finished",
    "run-stopped": "Stopped",
    "no-runs": "No training is watched. Start the server with --watch DIR, or a training with --dashboard PORT.",
    "no-steps": "This training has not written anything yet.",
};
const ZH = {
    languageName: "English",
    skip: "跳到正文",
    views: "视图",
    translate: "翻译",
    explore: "探索",
    training: "训练",
    dark: "深色主题",
    from: "源语言",
    to: "目标语言",
    swap: "交换语言",
    model: "模型",
    key: "API 密钥",
    text: "要翻译的文本",
    type: "输入或粘贴文本",
    clear: "清空",
    translation: "译文",
    copy: "复制",
    others: "其他译文",
    file: "翻译文件",
    kinds: "文本、网页或字幕：.txt、.html、.srt。拖到这里或选择文件。",
    progress: "进度",
    choose: "选择文件",
    cancel: "取消",
    download: "下载",
    inside: "翻译的内部",
    sentence: "句子",
    look: "查看",
    attention: "注意力",
    "attention-is": "每一层、每个头中，各词元对其他词元的注意程度。",
    beam: "束搜索",
    "beam-is": "搜索保留的所有假设，从左到右。可用方向键在树中移动。",
    run: "训练任务",
    "steps-done": "已完成的步数",
    samples: "每次验证时的译文",
    validation: "验证",
    local: "文本只留在运行此服务器的机器上。",
    detect: "检测语言",
    detected: "{0}（检测到）",
    "any-model": "自动",
    count: "{0} 个字符",
    "count-of": "{0} / {1} 个字符",
    time: "{0} 毫秒",
    score: "得分 {0}",
    copied: "已复制。",
    loop: "译文出现重复。",
    probability: "概率 {0}%",
    "from-words": "{0} 对应 {1}。",
    "from-nothing": "{0} 没有对应的词。",
    unreachable: "无法连接服务器。",
    failed: "服务器返回错误（{0}）。",
    "file-progress": "已翻译 {0} / {1} 段",
    "file-done": "{0} 已完成：共 {1} 段。",
    "file-cancelled": "已取消翻译 {0}。",
    "file-kind": "{0} 不是 .txt、.html 或 .srt 文件。",
    "file-empty": "{0} 中没有可翻译的文本。",
    "file-utf8": "{0} 不是 UTF-8 编码。",
    looking: "正在翻译……",
    "one-sentence": "仅对不超过 100 个词元的单个句子显示。",
    "beam-token": "{0}：概率 {1}%",
    "beam-end": "句子结束",
    "beam-result": "译文 {0}",
    "beam-finished": "已结束，未入选",
    "beam-path": "通向译文",
    "beam-kept": "保留",
    "beam-pruned": "剪枝",
    "beam-ended": "已结束及其得分",
    "beam-all": "显示被剪枝的候选",
    "beam-point": "指向一个词元，查看其概率和所在的假设。",
    loss: "损失",
    "valid-loss": "验证损失",
    scores: "验证得分",
    rate: "学习率",
    norm: "梯度范数",
    speed: "每秒词元数",
    "at-step": "第 {0} 步：{1}",
    step: "第 {0} 步",
    source: "原文",
    reference: "参考译文",
    "step-of": "第 {0} 步，共 {1} 步",
    "run-running": "运行中",
    "run-finished": "已完成",
    "run-stopped": "已停止",
    "no-runs": "没有可观察的训练。请用 --watch DIR 启动服务器，或用 --dashboard PORT 启动训练。",
    "no-steps": "这次训练尚未写入任何内容。",
};
// The words of explore.js.
const EXPLORE_ZH = {
    cross: "交叉注意力",
    encoder: "编码器自注意力",
    decoder: "解码器自注意力",
    source: "原文",
    translation: "译文",
    lines: "连线",
    map: "热图",
    grid: "所有层和头",
    kind: "类型",
    layer: "层",
    head: "头",
    drawing: "视图",
    count: "{0} / {1}",
    all: "全部",
    mean: "全部的平均",
    oneHead: "头 {0}",
    oneLayer: "层 {0}",
    oneMap: "第 {0} 层，第 {1} 头",
    axes: "{0}：行为{1}，列为{2}",
    pickMap: "选择一张图，查看其连线。",
    pickCell: "行注意列；指向单元格查看权重。",
    pickWord: "指向或点按一个词，或用 Tab 和方向键移到它，查看其连线。",
    looks: "{0} 注意：{1}",
    lookedAt: "注意 {0} 的有：{1}",
    cell: "{0} 注意 {1}：{2}",
    nothing: "无特别之处",
};
const ATTRIBUTES = { t: null, tLabel: "aria-label", tHint: "placeholder" };
let words = EN;

// What a word or sentence is in the language of the page; {0} stands for the first value.
export function say(key, ...values) {
    return (words[key] ?? EN[key]).replace(/\{(\d)\}/g, (_, i) => values[i]);
}

export function exploreWords() {
    return words === ZH ? EXPLORE_ZH : ENGLISH;
}

function read(element, attribute) {
    return attribute ? element.getAttribute(attribute) : element.textContent;
}

function write(element, attribute, text) {
    if (attribute) element.setAttribute(attribute, text);
    else element.textContent = text;
}

// Writes the page in a language, and tells those who wrote something themselves.
export function setLanguage(language) {
    document.documentElement.lang = language;
    words = language === "zh" ? ZH : EN;
    for (const element of document.querySelectorAll("[data-t], [data-t-label], [data-t-hint]"))
        for (const [member, attribute] of Object.entries(ATTRIBUTES)) {
            const key = element.dataset[member];
            if (!key) continue;
            EN[key] ??= read(element, attribute);
            write(element, attribute, say(key));
        }
    const button = document.getElementById("language");
    button.textContent = words.languageName;
    button.lang = language === "zh" ? "en" : "zh";
    document.dispatchEvent(new Event("worded"));
}
